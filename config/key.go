package config

import "strings"

// Values holds raw, trimmed values of the keys that were set.
type Values map[string]string

// Warning is something worth telling the operator about one key.
type Warning struct{ Key, Text string }

// String is the warning as one line.
func (w Warning) String() string { return w.Key + ": " + w.Text }

// ignored is how a Text says what becomes of a key that does nothing.
const ignored = ", it is ignored"

// Fault is the Text without what becomes of the key: the reason to refuse it.
func (w Warning) Fault() string { return strings.Replace(w.Text, ignored, "", 1) }

// Type is a value's type; the numbers are DescribeConfigs' wire enum.
type Type int8

// The types.
const (
	UnknownType Type = 0
	Boolean     Type = 1
	String      Type = 2
	Int         Type = 3
	Short       Type = 4
	Long        Type = 5
	Double      Type = 6
	List        Type = 7
	Class       Type = 8
	Password    Type = 9
)

// Scope tells whether and where a broker key may be changed while running.
type Scope int8

// The scopes.
const (
	ReadOnly    Scope = iota // only in server.properties
	PerBroker                // for one broker id at a time
	ClusterWide              // for one broker or for the cluster's default
)

// Importance is Kafka's grading of a key.
type Importance int8

// The grades.
const (
	Low Importance = iota
	Medium
	High
)

// Key is one row of the table.
type Key struct {
	Name       string
	Type       Type
	Default    string
	HasDefault bool // false: the default is null
	Scope      Scope
	Sensitive  bool
	Internal   bool // accepted, but not listed by DescribeConfigs
	Acted      bool // kbroker does something about it
	Importance Importance
	Valid      string // the values allowed, for people; empty: whatever the type allows
	Doc        string
	BrokerKey  string // topic keys: the broker key behind it, if any
	Validate   func(string) error
}
