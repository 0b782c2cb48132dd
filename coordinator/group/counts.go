package group

// Counts are what a shard holds, for metrics.
type Counts struct {
	Offsets int
	Classic map[string]int // groups by state, in Kafka's words
	// Consumer are those of the consumer protocol, likewise.
	Consumer map[string]int
}

// Add adds what the shard holds to c.
func (s *Shard) Add(c *Counts) {
	for _, g := range s.groups {
		c.Offsets += g.count
		by := &c.Classic
		if g.isConsumer() {
			by = &c.Consumer
		}
		if *by == nil {
			*by = map[string]int{}
		}
		(*by)[g.stateName()]++
	}
}
