package delay

import "math/bits"

// wheel is a hierarchical timing wheel over abstract ticks. It holds entries
// in lists, so adding and removing one costs the same however many there are.
//
// Invariant: every held entry has now < at, and sits at the level whose span
// holds at-now when it was put there; a level's slot is emptied into lower
// levels when now reaches the slot's start.
type wheel struct {
	now    int64
	count  int
	slots  [levels][slotsPerLevel]timerList
	filled [levels]uint64 // bit s: slots[level][s] is not empty
}

const (
	levels        = 6 // 64^6 ticks of 1 ms: two years
	slotBits      = 6
	slotsPerLevel = 1 << slotBits
	slotMask      = slotsPerLevel - 1
	horizon       = int64(1)<<(levels*slotBits) - 1
)

// timerLink is an entry's place in a wheel; list is nil while it is in none.
type timerLink struct {
	at         int64
	prev, next *Entry
	list       *timerList
}

type timerList struct {
	head        *Entry
	level, slot uint8
}

// add holds e until tick at. A tick that is not after now is due at the next.
func (w *wheel) add(e *Entry, at int64) {
	at = max(at, w.now+1)
	at = min(at, w.now+horizon)
	e.timer.at = at
	w.count++
	w.place(e)
}

func (w *wheel) place(e *Entry) {
	at := e.timer.at
	level := 0
	// The level is that of the highest digit in which at differs from now.
	if diff := uint64(at ^ w.now); diff != 0 {
		level = min((bits.Len64(diff)-1)/slotBits, levels-1)
	}
	slot := int(at>>(level*slotBits)) & slotMask
	l := &w.slots[level][slot]
	l.level, l.slot = uint8(level), uint8(slot)
	e.timer.list, e.timer.prev, e.timer.next = l, nil, l.head
	if l.head != nil {
		l.head.timer.prev = e
	}
	l.head = e
	w.filled[level] |= 1 << slot
}

// remove takes e out; it does nothing when e is in no list.
func (w *wheel) remove(e *Entry) {
	l := e.timer.list
	if l == nil {
		return
	}
	w.count--
	w.unlink(e, l)
}

func (w *wheel) unlink(e *Entry, l *timerList) {
	if e.timer.prev != nil {
		e.timer.prev.timer.next = e.timer.next
	} else {
		l.head = e.timer.next
	}
	if e.timer.next != nil {
		e.timer.next.timer.prev = e.timer.prev
	}
	e.timer.list, e.timer.prev, e.timer.next = nil, nil, nil
	if l.head == nil {
		w.filled[l.level] &^= 1 << l.slot
	}
}

// next is the first tick at which advance has something to do: an entry is due
// or a slot of a higher level is to be spread out. ok is false when empty.
func (w *wheel) next() (tick int64, ok bool) {
	for level := range levels {
		shift := level * slotBits
		cur := int(w.now>>shift) & slotMask
		// Slots after cur lie ahead within this turn of the level.
		ahead := w.filled[level] >> cur >> 1
		if ahead != 0 {
			step := int64(bits.TrailingZeros64(ahead)) + 1
			return (w.now>>shift + step) << shift, true
		}
		if level == levels-1 && w.filled[level] != 0 { // wrapped around the top level
			step := int64(slotsPerLevel - cur + bits.TrailingZeros64(w.filled[level]))
			return (w.now>>shift + step) << shift, true
		}
	}
	return 0, false
}

// advance moves now to tick and appends what became due to due, earliest
// first.
func (w *wheel) advance(tick int64, due []*Entry) []*Entry {
	for w.now < tick {
		next, ok := w.next()
		if !ok || next > tick {
			w.now = tick
			return due
		}
		w.now = next
		due = w.spread(due)
	}
	return due
}

// spread empties the slots that begin at now: of higher levels into lower
// ones, of the lowest into due.
func (w *wheel) spread(due []*Entry) []*Entry {
	for level := levels - 1; level >= 0; level-- {
		shift := level * slotBits
		if w.now&(int64(1)<<shift-1) != 0 {
			continue
		}
		l := &w.slots[level][int(w.now>>shift)&slotMask]
		for e := l.head; e != nil; e = l.head {
			w.unlink(e, l)
			if e.timer.at <= w.now {
				w.count--
				due = append(due, e)
				continue
			}
			w.place(e)
		}
	}
	return due
}

// drain empties the wheel.
func (w *wheel) drain() []*Entry {
	var held []*Entry
	for level := range w.slots {
		for slot := range w.slots[level] {
			for e := w.slots[level][slot].head; e != nil; e = w.slots[level][slot].head {
				w.remove(e)
				held = append(held, e)
			}
		}
	}
	return held
}
