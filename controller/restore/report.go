package restore

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/kbroker/kbroker/cluster"
)

// Report is how far the logs of one broker go.
type Report struct {
	Broker    cluster.BrokerID
	ClusterID string
	Ends      []End
}

// The lines of a report: one of the broker, then one of each log.
type (
	headLine struct {
		Version   int              `json:"version"`
		Broker    cluster.BrokerID `json:"broker"`
		ClusterID string           `json:"cluster"`
		Logs      int              `json:"logs"` // lines that follow
	}
	endLine struct {
		Topic     string              `json:"topic"`
		Partition int32               `json:"partition"`
		TopicID   string              `json:"topic_id"`
		Epoch     cluster.LeaderEpoch `json:"leader_epoch"`
		LEO       cluster.Offset      `json:"end_offset"`
	}
)

const reportVersion = 1

// maxLine bounds a line of a report; names of topics have at most 249 characters.
const maxLine = 4096

// ErrReport marks a report that cannot be read.
var ErrReport = errors.New("not a whole report of kbroker epochs scan")

// Write writes a report, a line of JSON for each log.
func (r *Report) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	out := json.NewEncoder(b)
	err := out.Encode(headLine{reportVersion, r.Broker, r.ClusterID, len(r.Ends)})
	for _, e := range r.Ends {
		if err == nil {
			err = out.Encode(endLine{e.Partition.Topic, e.Partition.Partition, e.TopicID.String(), e.Epoch, e.LEO})
		}
	}
	return errors.Join(err, b.Flush())
}

// ReadReport reads what Write has written. ErrReport: it is something else, or was cut
// short.
func ReadReport(in io.Reader) (Report, error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, maxLine), maxLine)
	line := 0
	next := func(v any) error {
		line++
		if !lines.Scan() {
			return fmt.Errorf("%w: line %d is missing or too long", ErrReport, line)
		}
		if err := json.Unmarshal(lines.Bytes(), v); err != nil {
			return fmt.Errorf("%w: line %d: %v", ErrReport, line, err)
		}
		return nil
	}
	var head headLine
	if err := next(&head); err != nil {
		return Report{}, err
	}
	if head.Version != reportVersion || head.Broker < 0 || head.ClusterID == "" {
		return Report{}, fmt.Errorf("%w: line 1: version %d, broker %d, cluster %q", ErrReport, head.Version, head.Broker, head.ClusterID)
	}
	r := Report{Broker: head.Broker, ClusterID: head.ClusterID}
	for range head.Logs {
		var e endLine
		if err := next(&e); err != nil {
			return Report{}, err
		}
		id, err := cluster.ParseTopicID(e.TopicID)
		if err == nil {
			err = cluster.ValidateTopicName(e.Topic)
		}
		if err == nil && (e.Partition < 0 || e.Epoch < cluster.NoLeaderEpoch || e.LEO < 0) {
			err = fmt.Errorf("partition %d, leader_epoch %d, end_offset %d", e.Partition, e.Epoch, e.LEO)
		}
		if err != nil {
			return Report{}, fmt.Errorf("%w: line %d: %v", ErrReport, line, err)
		}
		r.Ends = append(r.Ends, End{Partition: cluster.TopicPartition{Topic: e.Topic, Partition: e.Partition}, TopicID: id, Epoch: e.Epoch, LEO: e.LEO})
	}
	if lines.Scan() {
		return Report{}, fmt.Errorf("%w: line %d follows the last of %d logs", ErrReport, line+1, head.Logs)
	}
	return r, lines.Err()
}
