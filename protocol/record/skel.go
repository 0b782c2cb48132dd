package record

import (
	"github.com/kbroker/kbroker/cluster"
)

// Rec is one record of a batch. Its slices are valid until the next call of
// Iter.Next or Iter.Close.
type Rec struct {
	OffsetDelta    int32
	TimestampDelta int64
	Key, Value     []byte
	KeyNull        bool
	ValueNull      bool
	Attributes     int8
	HeaderCount    int32
	Headers        []byte // HeaderCount raw headers, as they are on the wire
}

// Header is one record header; a nil Value is null.
type Header struct {
	Key   string
	Value []byte
}

// Iter walks the records of a batch.
type Iter struct{ rec Rec }

// Decompressor is reusable decompression state with a limit.
type Decompressor struct{}

// NewDecompressor returns a Decompressor that yields at most limit bytes per
// batch; 0 stands for DefaultMaxDecompressed.
func NewDecompressor(limit int64) *Decompressor { panic("soon") }

// Iter starts a walk. d may be nil: pooled state is used then.
func (b Batch) Iter(d *Decompressor) Iter { panic("soon") }

// Next moves to the next record.
func (it *Iter) Next() bool { panic("soon") }

// Record is the current record.
func (it *Iter) Record() *Rec { return &it.rec }

// Offset is the absolute offset of the current record.
func (it *Iter) Offset() cluster.Offset { panic("soon") }

// Timestamp is the absolute timestamp of the current record.
func (it *Iter) Timestamp() int64 { panic("soon") }

// Err tells why Next returned false; nil at the regular end.
func (it *Iter) Err() error { panic("soon") }

// Close gives pooled state back.
func (it *Iter) Close() { panic("soon") }

// Rules are what a produced batch is judged by.
type Rules struct {
	MaxMessageBytes int   // max.message.bytes; 0: no limit
	SegmentBytes    int   // segment.bytes; 0: no limit
	TargetCodec     Codec // compression.type; CodecProducer keeps the producer's choice
	Level           int   // compression level for TargetCodec
	LogAppendTime   bool  // message.timestamp.type
	NowMs           int64
	BeforeMaxMs     int64 // message.timestamp.before.max.ms
	AfterMaxMs      int64 // message.timestamp.after.max.ms
	Compacted       bool  // cleanup.policy has compact: keys are required
	APIVersion      int16 // of the Produce request; its format rules apply to clients only
	AllowControl    bool  // the batch comes from a coordinator, not from a client
	MaxDecompressed int64 // bytes; 0: DefaultMaxDecompressed
}

// Validated is a produced batch that may be appended.
type Validated struct {
	Buf                  []byte // the batches, back to back; the input's memory unless Rewritten
	Batches              int    // 0 or 1: a request holds one format 2 batch at most
	Records              int
	MaxTimestamp         int64
	OffsetOfMaxTimestamp int64 // as Kafka's time index has it: the last offset of the batch, relative to the first; -1 none
	ProducerID           cluster.ProducerID
	ProducerEpoch        cluster.ProducerEpoch
	BaseSequence         int32
	LastSequence         int32
	Transactional        bool
	Control              bool
	SourceCodec          Codec
	TargetCodec          Codec
	Patched              bool // header fields other than offset and epoch were changed within Buf, and the CRC with them
	Rewritten            bool // Buf is new memory: converted, recompressed or repaired
	ConversionCount      int  // records that had to be written anew
}

// ValidateProduce judges one partition's records of a Produce request.
func ValidateProduce(buf []byte, r Rules) (Validated, error) { panic("soon") }

// BuilderOptions describe a batch to be built.
type BuilderOptions struct {
	Codec           Codec
	Level           int // 0: the codec's default
	BaseOffset      cluster.Offset
	LeaderEpoch     cluster.LeaderEpoch
	HasProducer     bool // the producer fields are set
	ProducerID      cluster.ProducerID
	ProducerEpoch   cluster.ProducerEpoch
	BaseSequence    int32
	Transactional   bool
	Control         bool
	LogAppendTime   bool  // MaxTimestamp is AppendTimeMs
	AppendTimeMs    int64 // with LogAppendTime
	DeleteHorizon   bool  // BaseTimestamp is DeleteHorizonMs
	DeleteHorizonMs int64
}

// Builder builds one format 2 batch.
type Builder struct{}

// NewBuilder starts a batch.
func NewBuilder(o BuilderOptions) *Builder { panic("soon") }

// Append adds a record at the next offset; nil key or value is null.
func (b *Builder) Append(timestampMs int64, key, value []byte, headers []Header) { panic("soon") }

// AppendRec adds a copy of a record of another batch at the given offset delta.
func (b *Builder) AppendRec(offsetDelta int32, timestampMs int64, r *Rec) { panic("soon") }

// SetLastOffsetDelta keeps offsets that have no record at the end.
func (b *Builder) SetLastOffsetDelta(d int32) { panic("soon") }

// Count is the number of records so far.
func (b *Builder) Count() int { panic("soon") }

// Size is the size of the batch so far, before compression.
func (b *Builder) Size() int { panic("soon") }

// Build returns the batch.
func (b *Builder) Build() (Batch, error) { panic("soon") }

// EmptyOf returns a batch without records that keeps b's offsets, producer
// state and timestamps: what compaction leaves of a batch it must remember.
func EmptyOf(b Batch) Batch { panic("soon") }

// ControlType is the kind of a control record.
type ControlType int16

// The control records that a log of topic data may carry.
const (
	ControlAbort  ControlType = 0
	ControlCommit ControlType = 1
)

// EndTxnMarker is the control batch that ends a transaction in one partition.
func EndTxnMarker(commit bool, pid cluster.ProducerID, epoch cluster.ProducerEpoch, coordinatorEpoch int32, nowMs int64) Batch {
	panic("soon")
}

// ParseControl reads a control record.
func ParseControl(r *Rec) (t ControlType, coordinatorEpoch int32, err error) { panic("soon") }

// DownConvert turns stored batches into format toMagic.
func DownConvert(buf []byte, toMagic int8, firstOffset cluster.Offset) (out []byte, err error) {
	panic("soon")
}
