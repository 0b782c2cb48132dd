// Package producers is what one partition knows of its idempotent and
// transactional producers: the last batches of each, open transactions, and
// completed ones that are not replicated yet. It decides on values; it reads no
// log and writes no file.
package producers
