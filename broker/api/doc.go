// Package api answers the requests of Kafka's protocol, one file per API: NN in
// a file's name is the API's key. A handler decodes nothing and decides
// nothing: it authorises, validates, calls, maps the error and answers. What
// the answers are made of lives in the packages below.
package api
