package sim

import "time"

// node is a process: a broker, a client, or the metadata store (0).
type node struct {
	id     int
	name   string
	up     bool
	closed bool          // does not take connections (yet)
	life   int           // counts its incarnations
	paused time.Duration // stopped (SIGSTOP) until then
}

// after runs do in n's present incarnation after d, later if it is stopped
// then.
func (w *World) after(n *node, d time.Duration, do func()) {
	life := n.life
	w.at(w.now+d, n, life, do)
}

func (w *World) at(t time.Duration, n *node, life int, do func()) {
	w.queue.push(t, func() {
		if !n.up || n.life != life {
			return
		}
		if n.paused > w.now {
			w.at(n.paused, n, life, do) // in the order in which it would have been
			return
		}
		do()
	})
}

// conn is one TCP connection between two incarnations: what is sent in one
// direction arrives in order, or it and all that follows does not arrive.
type conn struct {
	no               int // later ones have greater numbers
	from, to         *node
	fromLife, toLife int
	last             [2]time.Duration // when the latest message of each direction arrives
	dead             [2]bool
}

const (
	there = 0
	back  = 1
)

func (w *World) dial(from, to *node) *conn {
	w.conns++
	return &conn{no: w.conns, from: from, to: to, fromLife: from.life, toLife: to.life}
}

// carry sends something along c; arrive runs where it gets to, if it does.
func (w *World) carry(c *conn, way int, arrive func()) {
	from, to, life := c.from, c.to, c.toLife
	if way == back {
		from, to, life = c.to, c.from, c.fromLife
	}
	if c.dead[way] {
		return
	}
	if w.cut(from, to) || w.luck.once(w.cfg.LoseOnceIn) {
		c.dead[way] = true
		w.say("lost: %s -> %s", from.name, to.name)
		return
	}
	delay := w.luck.between(200*time.Microsecond, 4*time.Millisecond)
	if w.luck.once(w.cfg.HoldOnceIn) {
		delay = w.luck.between(0, w.cfg.HoldFor)
		w.say("held for %v: %s -> %s", delay, from.name, to.name)
	}
	at := max(w.now+delay, c.last[way]+1)
	c.last[way] = at
	w.at(at, to, life, func() {
		if w.cut(from, to) {
			c.dead[way] = true
			return
		}
		arrive()
	})
}

// cut reports whether nothing gets from one to another.
func (w *World) cut(from, to *node) bool { return w.cuts[[2]int{from.id, to.id}] > w.now }

// line is one caller's place for its connection to one callee: a call that
// fails takes the connection with it.
type line struct {
	from *node
	to   *node
	conn *conn
}

// call sends a request and waits for its answer, at most for patience. serve
// runs at the callee and may keep reply for later; reply carries an answer, which
// runs at the caller. failed runs instead of an answer, when the outcome is not
// known; an answer after that is dropped.
func (w *World) call(l *line, patience time.Duration, serve func(reply func(answer func())), failed func()) {
	if !l.to.up || l.to.closed {
		w.after(l.from, 5*time.Millisecond, failed) // connection refused
		l.conn = nil
		return
	}
	if l.conn == nil || l.conn.toLife != l.to.life {
		l.conn = w.dial(l.from, l.to)
	}
	c := l.conn
	over := false
	w.carry(c, there, func() {
		w.arrivedOn = c.no
		serve(func(answer func()) {
			w.carry(c, back, func() {
				if over {
					return
				}
				over = true
				answer()
			})
		})
	})
	w.after(l.from, patience, func() {
		if over {
			return
		}
		over = true
		if l.conn == c {
			l.conn = nil
		}
		failed()
	})
}
