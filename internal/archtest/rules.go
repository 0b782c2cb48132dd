package archtest

// rule says what one package of this module may import of it, and whether it
// is pure: values and decisions, without network, files, clock, goroutine,
// lock, log or randomness.
type rule struct {
	pure    bool
	imports []string
}

// rules name every package of the module. "broker/..." and the like stand for a
// package and all below it.
var rules = map[string]rule{
	"cluster":         {pure: true},
	"config":          {pure: true, imports: []string{"cluster"}},
	"protocol":        {pure: true, imports: []string{"cluster", "protocol/shapes"}},
	"protocol/shapes": {pure: true},
	"protocol/record": {pure: true, imports: []string{"cluster"}},
	"protocol/server": {imports: []string{"protocol", "internal/clock", "internal/metric"}},
	"protocol/client": {imports: []string{"protocol", "internal/clock"}},
	"partition":       {pure: true, imports: []string{"cluster"}},
	"partition/replica": {imports: []string{"cluster", "config", "partition", "logstore", "logstore/producers", "protocol/record",
		"internal/clock", "internal/delay", "internal/invariants"}},
	"partition/fetcher":  {imports: []string{"cluster", "logstore", "partition", "partition/replica", "protocol", "protocol/client", "internal/clock"}},
	"partition/isr":      {imports: []string{"cluster", "partition", "partition/replica", "protocol", "internal/clock"}},
	"controller":         {pure: true, imports: []string{"cluster"}},
	"controller/loop":    {imports: []string{"cluster", "controller", "zkmeta", "protocol", "protocol/client", "internal/clock"}},
	"controller/restore": {pure: true, imports: []string{"cluster"}},
	"coordinator":        {pure: true, imports: []string{"cluster", "protocol/record"}},
	"coordinator/assign": {pure: true, imports: []string{"cluster"}},
	"coordinator/group":  {pure: true, imports: []string{"cluster", "coordinator", "coordinator/assign", "protocol"}},
	"coordinator/shards": {imports: []string{"cluster", "coordinator", "logstore", "partition", "partition/replica", "protocol", "protocol/record", "internal/clock", "internal/delay"}},
	"logstore":           {imports: []string{"cluster", "config", "protocol/record", "logstore/cleaner", "logstore/epochs", "logstore/producers", "internal/clock", "internal/vfs", "internal/invariants"}},
	"logstore/cleaner":   {pure: true, imports: []string{"cluster", "protocol/record"}},
	"logstore/epochs":    {pure: true, imports: []string{"cluster", "protocol/record"}},
	"logstore/producers": {pure: true, imports: []string{"cluster", "protocol/record"}},
	"zkmeta":             {pure: true, imports: []string{"cluster"}},
	"zkmeta/feed":        {imports: []string{"zkmeta"}},
	"zkmeta/client":      {imports: []string{"cluster", "zkmeta", "zkmeta/feed", "internal/clock"}},
	"zkmeta/embedded":    {imports: []string{"cluster", "zkmeta", "zkmeta/feed", "internal/clock", "internal/vfs"}},
	"zkmeta/zkmetatest":  {imports: []string{"cluster", "zkmeta"}},

	"broker": {imports: []string{"broker/...", "cluster", "config", "console", "controller", "controller/loop", "controller/restore", "coordinator/...", "internal/...", "logstore", "partition/...",
		"protocol", "protocol/client", "protocol/server", "zkmeta/..."}},
	"broker/api": {imports: []string{"broker/configs", "broker/metadata", "broker/producerids", "broker/quota", "broker/session", "broker/topics", "cluster", "config",
		"controller", "controller/loop", "coordinator/...", "internal/...", "logstore", "logstore/producers", "partition", "partition/replica", "protocol", "protocol/record",
		"protocol/server", "zkmeta"}},
	"broker/configs":     {imports: []string{"cluster", "config", "internal/clock", "zkmeta"}},
	"broker/metadata":    {imports: []string{"cluster"}},
	"broker/producerids": {imports: []string{"cluster"}},
	"broker/quota":       {},
	"broker/session":     {imports: []string{"cluster"}},
	"broker/topics":      {imports: []string{"cluster", "config", "zkmeta"}},

	"console": {imports: []string{"internal/metric"}},

	"cmd/kbroker":       {imports: []string{"broker", "controller/restore", "config", "console", "logstore", "zkmeta/...", "internal/vfs"}},
	"integration":       {},
	"integration/drill": {},
	"bench/...":         {imports: []string{"bench/...", "cluster", "protocol", "protocol/record"}},

	"internal/archtest":   {},
	"internal/clock":      {},
	"internal/journal":    {},
	"internal/delay":      {imports: []string{"internal/clock"}},
	"internal/invariants": {},
	"internal/keystore":   {},
	"internal/metric":     {},
	"internal/sim":        {pure: true, imports: []string{"cluster", "partition", "controller", "coordinator/...", "logstore", "logstore/epochs", "protocol", "protocol/record", "internal/vfs"}},
	"internal/vfs":        {},
}

// impure are the imports that a pure package's own code may not have.
var impure = []string{"net", "net/http", "os", "os/exec", "os/signal", "sync", "sync/atomic", "syscall", "math/rand", "math/rand/v2",
	"log", "log/slog", "github.com/rs/zerolog", "golang.org/x/sys/unix", "io/ioutil", "testing/synctest"}

// excused are imports of impure packages for the harmless part of them.
var excused = map[string][]string{
	"protocol":        {"sync"}, // tables built once, scratch memory
	"protocol/record": {"sync"}, // pooled codecs
	"config":          {"net"},  // host and port in text
}

// maySleep are test files that have nothing to wait on.
var maySleep = map[string]string{
	"config/story_kafka_test.go": "records the answers of a running Apache Kafka, which tells nobody when a config is in force",
}

// maxLines is what a file may have at the most; 500 is the aim.
const maxLines = 800
