// Package vfs is the file system that the storage code writes to: the machine's
// own, or one in memory that can crash, lose what was not synced, run full and
// fail on command. It moves bytes and names only; it never knows a format.
package vfs
