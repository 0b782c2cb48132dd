package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kbroker/kbroker/console"
)

// row is one partition as the broker that knows best shows it.
type row struct {
	console.Partition
	by   int32 // the broker whose word it is
	live []int32
}

func (r *row) name() string {
	return printable(r.Topic) + "-" + strconv.Itoa(int(r.Partition.Partition))
}

// rowsOf are the partitions that brokers show, sorted: of several rows of one
// partition the leader's, and of two leaders the newer one's.
func rowsOf(list []seen) []row {
	best := map[string]row{}
	for _, x := range list {
		if x.err != nil {
			continue
		}
		for _, p := range x.listing.Partitions {
			r := row{p, x.listing.Broker, x.listing.Live}
			if old, ok := best[r.name()]; !ok || r.better(&old) {
				best[r.name()] = r
			}
		}
	}
	out := make([]row, 0, len(best))
	for _, r := range best {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b row) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition.Partition, b.Partition.Partition))
	})
	return out
}

func (r *row) better(o *row) bool {
	leads := func(x *row) int {
		if x.Role == "leader" {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(leads(r), leads(o)), cmp.Compare(r.LeaderEpoch, o.LeaderEpoch), cmp.Compare(r.LEO, o.LEO), cmp.Compare(o.by, r.by)) > 0
}

// trouble is what is wrong with the partition, "" for nothing.
func (r *row) trouble() string {
	switch {
	case r.Role == "offline":
		return "log directory failed"
	case r.Leader < 0:
		return "no leader"
	case r.Role != "leader" && !slices.Contains(r.live, r.Leader):
		return "leader is gone"
	case r.Role != "leader": // the leader would know, and is not asked
		return ""
	case len(r.ISR) < int(r.MinISR):
		return "below min.insync.replicas"
	case len(r.Assignment.Adding)+len(r.Assignment.Removing) > 0:
		return "reassigning"
	case len(r.ISR) < len(r.Assignment.Replicas):
		return "under-replicated"
	}
	return ""
}

// isr is the ISR, with what a proposal adds to it.
func (r *row) isr() string {
	out := joined(r.ISR)
	for _, id := range r.MaximalISR {
		if !slices.Contains(r.ISR, id) {
			out += "+" + strconv.Itoa(int(id))
		}
	}
	return out
}

// followers are the followers with the records that each lacks.
func (r *row) followers() string {
	if r.Role != "leader" {
		return "seen by " + strconv.Itoa(int(r.by))
	}
	if len(r.Followers) == 0 {
		return "-"
	}
	parts := make([]string, len(r.Followers))
	for i, f := range r.Followers {
		lag := "?"
		if f.Lag != nil {
			lag = strconv.FormatInt(*f.Lag, 10)
		}
		parts[i] = strconv.Itoa(int(f.Broker)) + ":" + lag
	}
	return strings.Join(parts, " ")
}

func (r *row) leader() string {
	if r.Leader < 0 {
		return "-"
	}
	return strconv.Itoa(int(r.Leader))
}

// sentence is the row as a line of a log.
func (r *row) sentence() string {
	out := fmt.Sprintf("%s: leader %s epoch %d, start %d HW %d LEO %d, ISR %s of %s, %s", r.name(), r.leader(), r.LeaderEpoch,
		r.LogStart, r.HW, r.LEO, r.isr(), joined(r.Assignment.Replicas), r.followers())
	if t := r.trouble(); t != "" {
		out += ", " + t
	}
	return out
}

// rates derives records per second from two looks that are some time apart.
type rates struct {
	at   time.Time
	leo  map[string]int64
	last map[string]float64
}

// rateSpan is the least time between the looks: shorter ones flicker.
const rateSpan = time.Second

// look takes in the rows as of now.
func (x *rates) look(rows []row, now time.Time) {
	span := now.Sub(x.at)
	if span < rateSpan {
		return
	}
	leo, last := map[string]int64{}, map[string]float64{}
	for i := range rows {
		name := rows[i].name()
		leo[name] = rows[i].LEO
		if was, ok := x.leo[name]; ok {
			last[name] = float64(max(0, rows[i].LEO-was)) / span.Seconds()
		}
	}
	x.at, x.leo, x.last = now, leo, last
}

func (x *rates) of(name string) string {
	if x == nil {
		return "-"
	}
	n, ok := x.last[name]
	switch {
	case !ok:
		return "-"
	case n >= 1e6:
		return fmt.Sprintf("%.1fM", n/1e6)
	case n >= 1e4:
		return fmt.Sprintf("%.1fk", n/1e3)
	}
	return fmt.Sprintf("%.0f", n)
}

// grid is text in columns; column 0 and the last are flush left.
type grid struct {
	cells [][]string // the first row is the header
	bad   []bool     // by row
}

func table(rows []row, x *rates) *grid {
	g := &grid{cells: [][]string{{"PARTITION", "LEADER", "EPOCH", "START", "LSO", "HW", "LEO", "REC/S", "MIN", "ISR", "FOLLOWERS: LAG", "STATE"}}, bad: []bool{false}}
	for i := range rows {
		r := &rows[i]
		n := func(v int64) string { return strconv.FormatInt(v, 10) }
		state := r.trouble()
		g.bad = append(g.bad, state != "")
		if state == "" && r.Role == "leader" {
			state = "ok"
		}
		g.cells = append(g.cells, []string{r.name(), r.leader(), n(int64(r.LeaderEpoch)), n(r.LogStart), n(r.LSO), n(r.HW), n(r.LEO),
			x.of(r.name()), n(int64(r.MinISR)), r.isr(), r.followers(), state})
	}
	return g
}

// numeric are the columns that are flush right.
const numericFrom, numericTo = 1, 9

func (g *grid) lines() []string {
	widths := make([]int, len(g.cells[0]))
	for _, line := range g.cells {
		for i, c := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	out := make([]string, len(g.cells))
	for y, line := range g.cells {
		var b strings.Builder
		for i, c := range line {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			if i >= numericFrom && i < numericTo {
				c, pad = pad+c, ""
			}
			b.WriteString(c)
			b.WriteString(pad)
			b.WriteString("  ")
		}
		out[y] = strings.TrimRight(b.String(), " ")
	}
	return out
}

// frame is one picture of the terminal: who was asked, the table as far as it
// fits, and how much does not.
func frame(list []seen, topic string, x *rates, now time.Time, w, h int) string {
	rows := rowsOf(list)
	x.look(rows, now)
	lines := heading(list)
	if len(rows) == 0 && topic != "" && someAnswer(list) {
		lines = append(lines, noTopic(topic))
	}
	colours := make([]string, len(lines))
	room := max(1, h-len(lines)-3) // an empty line, the header, what does not fit
	more := len(rows) - room
	for _, s := range list {
		if s.err == nil && s.listing.Next != "" {
			more = max(more, 1)
		}
	}
	g := table(rows[:min(len(rows), room)], x)
	lines, colours = append(lines, ""), append(colours, "")
	for i, line := range g.lines() {
		colour := ""
		switch {
		case i == 0:
			colour = "\x1b[1m" // bold
		case g.bad[i]:
			colour = "\x1b[31m" // red
		}
		lines, colours = append(lines, line), append(colours, colour)
	}
	if more > 0 {
		lines, colours = append(lines, "… more partitions than fit; --topic narrows it"), append(colours, "")
	}
	var b strings.Builder
	b.WriteString("\x1b[H")
	for i, line := range lines[:min(len(lines), max(1, h))] {
		if i > 0 {
			b.WriteString("\n")
		}
		if colours[i] != "" {
			b.WriteString(colours[i])
		}
		b.WriteString(cut(line, w))
		b.WriteString("\x1b[0m\x1b[K")
	}
	b.WriteString("\x1b[J")
	return b.String()
}

// heading says who was asked and what they say of the cluster.
func heading(list []seen) []string {
	var lines []string
	for _, s := range list {
		if s.err != nil {
			lines = append(lines, printable(fmt.Sprintf("%s  %v", s.addr, s.err)))
			continue
		}
		lines = append(lines, printable(fmt.Sprintf("%s  broker %d, live %s, controller %d, %d replicas here, cluster %s",
			s.addr, s.listing.Broker, joined(s.listing.Live), s.listing.Controller, s.listing.Hosted, s.listing.ClusterID)))
	}
	return lines
}

// cut shortens a line to the terminal's width.
func cut(line string, w int) string {
	if w < 1 || utf8.RuneCountInString(line) <= w {
		return line
	}
	r := []rune(line)
	return string(r[:w-1]) + "…"
}
