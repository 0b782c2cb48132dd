// Package producerids hands out producer ids, one at a time, from the blocks
// that the controller gives this broker. An id is never handed out twice in the
// cluster; a restart wastes the rest of a block.
package producerids
