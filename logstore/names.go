package logstore

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/kbroker/kbroker/cluster"
)

// File and directory suffixes as Kafka spells them.
const (
	extLog       = ".log"
	extIndex     = ".index"
	extTimeIndex = ".timeindex"
	extTxnIndex  = ".txnindex"
	extSnapshot  = ".snapshot"

	suffixDeleted = ".deleted"
	suffixCleaned = ".cleaned"
	suffixSwap    = ".swap"

	dirDelete = "-delete"
	dirFuture = "-future"
	dirStray  = "-stray"

	lockFile = ".lock"

	// remoteIndexDir is tiered storage's, never a partition.
	remoteIndexDir = "remote-log-index-cache"
	metadataTopic  = "__cluster_metadata"
)

// segmentExts are the files of one segment in the order of their creation: the
// log comes last, so that a crash in between leaves indexes without a log,
// which loading removes. Deletion goes the other way.
var segmentExts = [...]string{extIndex, extTimeIndex, extTxnIndex, extLog}

// fileName is the name of a segment's file: 20 digits and the extension.
func fileName(base int64, ext string) string {
	var b [20]byte
	n := uint64(base)
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte('0' + n%10)
		n /= 10
	}
	return string(b[:]) + ext
}

// parseFileName splits a name such as 00000000000000000042.log into the offset
// and what follows its digits. It takes any number of digits, as Kafka does.
func parseFileName(name string) (base int64, ext string, ok bool) {
	dot := strings.IndexByte(name, '.')
	if dot <= 0 || dot > 20 {
		return 0, "", false
	}
	for i := range dot {
		if name[i] < '0' || name[i] > '9' {
			return 0, "", false
		}
	}
	base, err := strconv.ParseInt(name[:dot], 10, 64)
	return base, name[dot:], err == nil
}

// dirKind tells what a partition's directory is for.
type dirKind uint8

const (
	dirCurrent dirKind = iota
	dirDeleted         // renamed for deletion
	dirMoving          // the future replica of a move between log directories
	dirStrayed         // set aside: no longer this broker's
)

var dirSuffixes = [...]struct {
	suffix string
	kind   dirKind
}{{dirDelete, dirDeleted}, {dirFuture, dirMoving}, {dirStray, dirStrayed}}

// parseDirName reads TOPIC-PARTITION and TOPIC-PARTITION.ID-delete, -future
// and -stray.
func parseDirName(name string) (cluster.TopicPartition, dirKind, error) {
	kind, rest := dirCurrent, name
	for _, s := range dirSuffixes {
		base, ok := strings.CutSuffix(name, s.suffix)
		if dot := strings.LastIndexByte(base, '.'); ok && dot > 0 && dot < len(base)-1 {
			kind, rest = s.kind, base[:dot]
		}
	}
	dash := strings.LastIndexByte(rest, '-')
	if dash <= 0 || dash == len(rest)-1 {
		return cluster.TopicPartition{}, 0, badDirName(name)
	}
	p, err := strconv.ParseInt(rest[dash+1:], 10, 32)
	if err != nil || p < 0 {
		return cluster.TopicPartition{}, 0, badDirName(name)
	}
	return cluster.TopicPartition{Topic: rest[:dash], Partition: int32(p)}, kind, nil
}

func badDirName(name string) error {
	return fmt.Errorf("directory %q is not of the form TOPIC-PARTITION, nor marked for deletion", name)
}

// suffixedDirName is TOPIC-PARTITION.<32 hex digits>SUFFIX; the topic is cut
// so that the name stays within 255 bytes.
func suffixedDirName(tp cluster.TopicPartition, suffix string) string {
	var id [16]byte
	rand.Read(id[:]) // never fails
	tail := "-" + strconv.Itoa(int(tp.Partition)) + "." + hex.EncodeToString(id[:]) + suffix
	topic := tp.Topic
	if suffix != dirFuture && len(topic)+len(tail) > 255 {
		topic = topic[:255-len(tail)]
	}
	return topic + tail
}
