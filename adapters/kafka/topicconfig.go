package kafka

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// topicConfig is what matters here of a topic's settings.
type topicConfig struct {
	known      bool          // false: the broker did not tell us
	retention  time.Duration // retention.ms; meaningless when unlimited
	segment    time.Duration // segment.ms: how much longer the last segment may live
	unlimited  bool          // records are kept for ever
	compacted  bool
	maxMessage int // max.message.bytes
}

// horizon is how old a record may be that the broker can still deliver, at most.
func (t topicConfig) horizon() time.Duration { return t.retention + t.segment }

// configs asks for the settings of topics. A topic whose settings may not be read is unknown, which is not an error.
func (c *cluster) configs(ctx context.Context, client *kafkago.Client, topics []string) (map[string]topicConfig, error) {
	req := &kafkago.DescribeConfigsRequest{}
	for _, t := range topics {
		req.Resources = append(req.Resources, kafkago.DescribeConfigRequestResource{
			ResourceType: kafkago.ResourceTypeTopic,
			ResourceName: t,
			ConfigNames:  []string{"retention.ms", "segment.ms", "cleanup.policy", "max.message.bytes"},
		})
	}
	res, err := client.DescribeConfigs(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("kafka: read the settings of the topics: %w", err)
	}
	out := map[string]topicConfig{}
	for _, r := range res.Resources {
		if r.Error == nil {
			out[r.ResourceName] = parseTopicConfig(r.ConfigEntries)
		}
	}
	return out, nil
}

func parseTopicConfig(entries []kafkago.DescribeConfigResponseConfigEntry) topicConfig {
	t := topicConfig{}
	var deletes, retains bool
	for _, e := range entries {
		n, err := strconv.ParseInt(e.ConfigValue, 10, 64)
		switch e.ConfigName {
		case "retention.ms":
			t.retention, retains = millis(n), err == nil
			t.unlimited = t.unlimited || n < 0
		case "segment.ms":
			t.segment = millis(n)
		case "cleanup.policy":
			t.compacted = strings.Contains(e.ConfigValue, "compact")
			deletes = strings.Contains(e.ConfigValue, "delete")
		case "max.message.bytes":
			t.maxMessage = int(n)
		}
	}
	t.known = retains
	t.unlimited = t.unlimited || t.compacted && !deletes
	return t
}

// millis is n ms, at most 100 years: brokers take any int64.
func millis(n int64) time.Duration {
	const century = 100 * 365 * 24 * time.Hour
	if n > int64(century/time.Millisecond) {
		return century
	}
	return time.Duration(n) * time.Millisecond
}
