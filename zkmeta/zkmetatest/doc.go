// Package zkmetatest is the contract of a metadata store as tests that every
// implementation passes, a slow and obvious model of its tree, and what tests
// need to run it over ZooKeeper: a server process if one can be found, and a
// proxy that cuts, mutes and loses replies.
//
// It is for tests only and keeps no assertion to itself: each failure names the
// call.
package zkmetatest
