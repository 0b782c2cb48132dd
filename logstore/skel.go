package logstore

import (
	"io"

	"github.com/kbroker/kbroker/cluster"
	"github.com/kbroker/kbroker/config"
	"github.com/kbroker/kbroker/protocol/record"
)

type Store struct{}
type Log struct{}
type Slice struct{}
type Guard uint64
type segment struct{}

func Open(o Options) (*Store, error)                        { panic("soon") }
func (s *Store) Stats() LoadStats                           { panic("soon") }
func (s *Store) Logs() []*Log                               { panic("soon") }
func (s *Store) Log(tp cluster.TopicPartition) (*Log, bool) { panic("soon") }
func (s *Store) Create(tp cluster.TopicPartition, id cluster.TopicID, cfg config.Log) (*Log, error) {
	panic("soon")
}

// CreateKnown is Create for a partition that is not new: refused with ErrStorage while a directory is offline, which may hold it.
func (s *Store) CreateKnown(tp cluster.TopicPartition, id cluster.TopicID, cfg config.Log) (*Log, error) {
	panic("soon")
}
func (s *Store) Delete(tp cluster.TopicPartition) error                        { panic("soon") }
func (s *Store) LoadHighWatermarks() map[cluster.TopicPartition]cluster.Offset { panic("soon") }
func (s *Store) SetHighWatermarkSource(f func() map[cluster.TopicPartition]cluster.Offset) {
	panic("soon")
}
func (s *Store) CheckpointAll() error                 { panic("soon") }
func (s *Store) Dirs() []DirInfo                      { panic("soon") }
func (s *Store) SetBrokerEpoch(e cluster.BrokerEpoch) { panic("soon") }
func (s *Store) ClusterID() string                    { panic("soon") }
func (s *Store) Close() error                         { panic("soon") }

func (l *Log) TopicPartition() cluster.TopicPartition { panic("soon") }
func (l *Log) TopicID() cluster.TopicID               { panic("soon") }
func (l *Log) SetTopicID(id cluster.TopicID) error    { panic("soon") }
func (l *Log) Dir() string                            { panic("soon") }
func (l *Log) Size() int64                            { panic("soon") }
func (l *Log) LogStart() cluster.Offset               { panic("soon") }
func (l *Log) LEO() cluster.Offset                    { panic("soon") }
func (l *Log) Generation() uint64                     { panic("soon") }
func (l *Log) Config() *config.Log                    { panic("soon") }
func (l *Log) SetConfig(cfg config.Log)               { panic("soon") }
func (l *Log) Offline() error                         { panic("soon") }

func (l *Log) AppendAsLeader(v *record.Validated, epoch cluster.LeaderEpoch, o AppendOptions) (AppendInfo, error) {
	panic("soon")
}
func (l *Log) AppendAsFollower(buf []byte, ownEpoch cluster.LeaderEpoch) (AppendInfo, error) {
	panic("soon")
}
func (l *Log) BeginTxnVerification(pid cluster.ProducerID, epoch cluster.ProducerEpoch, sequence int32) (g Guard, needed bool) {
	panic("soon")
}
func (l *Log) Read(from cluster.Offset, maxBytes int, upTo cluster.Offset, minOne bool) (*Slice, error) {
	panic("soon")
}
func (l *Log) AbortedTxns(from, upTo cluster.Offset) ([]AbortedTxn, error) { panic("soon") }
func (l *Log) FirstUnstable() (cluster.Offset, bool)                       { panic("soon") }
func (l *Log) LSO(hw cluster.Offset) cluster.Offset                        { panic("soon") }
func (l *Log) HighWatermarkMoved(hw cluster.Offset)                        { panic("soon") }
func (l *Log) OffsetForTimestamp(ts int64) (TimestampOffset, bool, error)  { panic("soon") }
func (l *Log) MaxTimestampOffset() (TimestampOffset, bool, error)          { panic("soon") }

// OffsetsBefore answers ListOffsets v0: up to limit segment starts (and LEO), newest first, of segments last modified at or before ts; -1 latest, -2 earliest.
func (l *Log) OffsetsBefore(ts int64, limit int) ([]cluster.Offset, error)             { panic("soon") }
func (l *Log) BecomeLeaderEpoch(epoch cluster.LeaderEpoch, start cluster.Offset) error { panic("soon") }
func (l *Log) LatestEpoch() cluster.LeaderEpoch                                        { panic("soon") }
func (l *Log) EndOffsetForEpoch(e cluster.LeaderEpoch) (cluster.LeaderEpoch, cluster.Offset) {
	panic("soon")
}
func (l *Log) TruncateTo(off cluster.Offset) error              { panic("soon") }
func (l *Log) TruncateFullyAndStartAt(off cluster.Offset) error { panic("soon") }
func (l *Log) DeleteRecordsBefore(off, hw cluster.Offset) error { panic("soon") }
func (l *Log) MaybeRoll() error                                 { panic("soon") }
func (l *Log) Flush(upTo cluster.Offset) error                  { panic("soon") }
func (l *Log) RecoveryPoint() cluster.Offset                    { panic("soon") }
func (l *Log) ActiveProducers() []ProducerInfo                  { panic("soon") }

// Len is the number of bytes.
func (s *Slice) Len() int                           { panic("soon") }
func (s *Slice) WriteTo(w io.Writer) (int64, error) { panic("soon") }
func (s *Slice) Release()                           { panic("soon") }

// Bytes reads the slice into memory; valid until Release.
func (s *Slice) Bytes() ([]byte, error) { panic("soon") }

// First is the base offset of the first batch; NoOffset when empty.
func (s *Slice) First() cluster.Offset { panic("soon") }

// UpperBound is an offset that no record in the slice reaches, for AbortedTxns.
func (s *Slice) UpperBound() (cluster.Offset, error) { panic("soon") }
func (s *Slice) FirstEntryIncomplete() bool          { panic("soon") }
func (s *Slice) Generation() uint64                  { panic("soon") }
