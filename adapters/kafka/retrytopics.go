package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

const (
	dlqSuffix = ".dlq"
	// letterRoom is what the headers of a copy may add to a message.
	letterRoom = 64 << 10
)

// sideTopic is a retry or dead-letter topic that must be there.
type sideTopic struct {
	name string
	tier time.Duration // 0: dead letters
	// of the topics whose messages come here: the most partitions, the longest retention, the largest message
	partitions int
	source     topicConfig
}

// merge takes another source into account.
func (s *sideTopic) merge(partitions int, source topicConfig) {
	s.partitions = max(s.partitions, partitions)
	s.source.known = s.source.known || source.known
	s.source.unlimited = s.source.unlimited || source.unlimited
	s.source.retention = max(s.source.retention, source.retention)
	s.source.maxMessage = max(s.source.maxMessage, source.maxMessage)
}

// settings of a topic that we make. Deleting by key would lose letters, and so would a retention: a dead letter stays until somebody
// deletes it, a waiting message as long as it would have stayed in its source.
func (s *sideTopic) settings() map[string]string {
	m := map[string]string{"cleanup.policy": "delete", "retention.ms": "-1"}
	if s.tier > 0 && s.source.known && !s.source.unlimited {
		m["retention.ms"] = strconv.FormatInt((s.source.retention + s.tier).Milliseconds(), 10)
	}
	if s.source.maxMessage > 0 {
		m["max.message.bytes"] = strconv.Itoa(s.source.maxMessage + letterRoom)
	}
	return m
}

// command is what an operator runs to make the topic.
func (s *sideTopic) command(broker string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions %d", broker, s.name, s.partitions)
	settings := s.settings()
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, " --config %s=%s", k, settings[k])
	}
	return b.String()
}

// check says what is wrong with a topic that is there already.
func (s *sideTopic) check(have topicConfig) error {
	if !have.known {
		return nil
	}
	alter := func(setting string) string {
		return "kafka-configs.sh --alter --entity-type topics --entity-name " + s.name + " --add-config " + setting
	}
	var errs []error
	if have.compacted {
		errs = append(errs, fmt.Errorf("kafka: topic %q is compacted: copies with the same key would delete each other; run %s", s.name, alter("cleanup.policy=delete")))
	}
	if s.tier > 0 && !have.unlimited && have.retention <= s.tier {
		errs = append(errs, fmt.Errorf("kafka: topic %q keeps messages for %v, but they wait in it for %v: they would be deleted unseen; run %s", s.name, have.retention, s.tier, alter("retention.ms="+s.settings()["retention.ms"])))
	}
	if s.source.known && have.maxMessage < s.source.maxMessage {
		errs = append(errs, fmt.Errorf("kafka: topic %q takes messages of %d bytes, its source of %d; run %s", s.name, have.maxMessage, s.source.maxMessage, alter("max.message.bytes="+s.settings()["max.message.bytes"])))
	}
	return errors.Join(errs...)
}

// ensure makes the side topics that are missing and checks those that are there. A topic that may not be made is an error that says the
// command.
func (c *cluster) ensure(ctx context.Context, side []*sideTopic, create bool) error {
	names := make([]string, len(side))
	for i, s := range side {
		names[i] = s.name
	}
	if len(names) == 0 {
		return nil
	}
	client := c.client(names...) // names: after a creation kafka-go waits until its own metadata shows the topic
	meta, err := c.metadata(ctx, names...)
	if err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	missing := map[string]bool{}
	for _, t := range meta.Topics {
		missing[t.Name] = errors.Is(t.Error, kafkago.UnknownTopicOrPartition)
	}
	var present []string
	var errs []error
	for _, s := range side {
		if !missing[s.name] {
			present = append(present, s.name)
			continue
		}
		if err := c.create(ctx, client, s, create); err != nil {
			errs = append(errs, err)
		}
	}
	have := map[string]topicConfig{}
	if len(present) > 0 {
		if have, err = c.configs(ctx, client, present); err != nil {
			return err
		}
	}
	for _, s := range side {
		if cfg, ok := have[s.name]; ok {
			errs = append(errs, s.check(cfg))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	_, err = c.partitions(ctx, names) // trap 53: written to only once they have leaders
	return err
}

func (c *cluster) create(ctx context.Context, client *kafkago.Client, s *sideTopic, create bool) error {
	refused := func(err error) error {
		return fmt.Errorf("kafka: topic %q is missing (%w); create it: %s", s.name, err, s.command(c.brokers[0]))
	}
	if !create {
		return refused(errors.New("Config.NoCreate is set"))
	}
	settings := s.settings()
	req := kafkago.TopicConfig{Topic: s.name, NumPartitions: s.partitions, ReplicationFactor: -1}
	for _, k := range slices.Sorted(maps.Keys(settings)) {
		req.ConfigEntries = append(req.ConfigEntries, kafkago.ConfigEntry{ConfigName: k, ConfigValue: settings[k]})
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	res, err := client.CreateTopics(ctx, &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{req}})
	if err != nil {
		return refused(err)
	}
	if err := res.Errors[s.name]; err != nil && !errors.Is(err, kafkago.TopicAlreadyExists) { // another member was quicker
		return refused(err)
	}
	return nil
}
