package record

import "fmt"

// maxRecordErrors bounds how many records a rejection names. Clients fail the
// rest of the batch with them.
const maxRecordErrors = 10_000

// findings collects what is wrong with single records.
type findings struct {
	list   []RecordError
	total  int
	fault  Fault
	badAge bool // one of them is about a timestamp
}

func (f *findings) add(index int32, fault Fault, format string, args ...any) {
	f.total++
	if f.fault == FaultNone {
		f.fault = fault
	}
	if len(f.list) < maxRecordErrors {
		f.list = append(f.list, RecordError{BatchIndex: index, Message: fmt.Sprintf(format, args...)})
	}
}

// err is nil when nothing was found.
func (f *findings) err() error {
	if f.total == 0 {
		return nil
	}
	e := &RecordErrors{Kind: ErrInvalidRecord, Fault: f.fault, Errors: f.list}
	if f.badAge {
		e.Kind = ErrInvalidTimestamp
		e.Message = "some records are rejected for their timestamps"
		return e
	}
	e.Message = fmt.Sprintf("%d records are rejected, the first of them, with index %d in its batch: %s",
		f.total, f.list[0].BatchIndex, f.list[0].Message)
	return e
}

// judge applies the rules for single records: key, then timestamp.
func (r *Rules) judge(f *findings, index int32, keyNull bool, ts int64, logAppendTime bool) {
	switch {
	case r.Compacted && keyNull:
		f.add(index, FaultNoKey, "a compacted topic takes no record without a key")
	case !r.LogAppendTime && ts != NoTimestamp:
		if !r.timely(ts) {
			f.badAge = true
			f.add(index, FaultNone, "timestamp %d is out of the range [%d, %d]", ts, r.NowMs-r.BeforeMaxMs, r.NowMs+r.AfterMaxMs)
		}
	case logAppendTime:
		f.badAge = true
		f.add(index, FaultNone, "a producer must not set the timestamp type LogAppendTime")
	}
}

// recordErrors walks the records of b, which are known to be whole, a second
// time and names the bad ones.
func (r *Rules) recordErrors(b Batch) error {
	d := pooledDecompressor(r.MaxDecompressed)
	defer d.release()
	it := b.Iter(d)
	defer it.Close()
	var f findings
	for i := int32(0); it.Next(); i++ {
		r.judge(&f, i, it.Record().KeyNull, it.Timestamp(), b.LogAppendTime())
	}
	if it.Err() != nil {
		return it.Err()
	}
	return f.err()
}
