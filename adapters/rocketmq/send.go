package rocketmq

import (
	"bytes"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	crand "crypto/rand"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"github.com/idemq/idemq/consumer"
	"github.com/idemq/idemq/internal/remoting"
)

// Answers to a message that was stored, though not as safely as the broker is set up to: sending it again would only store it twice.
const (
	flushDiskTimeout  = 10
	slaveNotAvailable = 11
	flushSlaveTimeout = 12
)

const (
	// compressOver is the size from which bodies are sent compressed, as clients do: one that came to us compressed may be over the broker's limit without.
	compressOver = 4096
	sendTries    = 3
)

// send writes a copy of m to a topic, by its name in the cluster, and returns nil once the broker has it. After any other error it may have it too.
func (c *cluster) send(ctx context.Context, log *slog.Logger, resource string, m *consumer.Message, hs consumer.Headers) error {
	properties, err := propertiesOf(m, hs)
	if err != nil {
		return fmt.Errorf("rocketmq: write to %q: %w", resource, err)
	}
	properties[primitive.PropertyUniqueClientMessageIdKeyIndex] = strings.ToUpper(crand.Text())
	properties[primitive.PropertyWaitStoreMsgOk] = "true"
	fields, body, err := request(resource, properties, m.Value)
	if err != nil {
		return fmt.Errorf("rocketmq: write to %q: %w", resource, err)
	}
	var errs []error
	for range sendTries {
		err := c.sendOnce(ctx, log, resource, fields, body)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
		if refusedForGood(err) || errors.Is(err, errClosed) || sleep(ctx, 100*time.Millisecond) != nil {
			break
		}
	}
	return fmt.Errorf("rocketmq: write to %q: %w", resource, errors.Join(errs...))
}

// refusedForGood: sending it again cannot help.
func refusedForGood(err error) bool {
	return errors.Is(err, errTooLarge) || errors.Is(err, errNoTopic) || remoting.IsCode(err, remoting.MessageIllegal, remoting.NoPermission, remoting.TopicNotExist)
}

func (c *cluster) sendOnce(ctx context.Context, log *slog.Logger, resource string, fields map[string]string, body []byte) error {
	to, err := c.route(ctx, resource)
	if err != nil {
		return err
	}
	if len(to.write) == 0 {
		return errors.New("no queue may be written")
	}
	q := to.write[rand.IntN(len(to.write))] //nolint:gosec // any queue will do
	fields = maps.Clone(fields)
	fields["queueId"] = strconv.Itoa(q.ID)
	_, err = c.call(ctx, to.brokers[q.Broker], remoting.SendMessage, fields, body)
	if remoting.IsCode(err, flushDiskTimeout, flushSlaveTimeout, slaveNotAvailable) {
		log.WarnContext(ctx, "message is stored, but not yet on disk or on a replica", "topic", resource, "err", err)
		return nil
	}
	return err
}

func request(resource string, properties map[string]string, value []byte) (fields map[string]string, body []byte, err error) {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		text.WriteString(name + "\x01" + properties[name] + "\x02")
	}
	flag := 0
	if body = value; len(body) > compressOver {
		var small bytes.Buffer
		w := zlib.NewWriter(&small)
		if _, err := w.Write(value); err != nil {
			return nil, nil, err
		}
		if err := w.Close(); err != nil {
			return nil, nil, err
		}
		body, flag = small.Bytes(), primitive.FlagCompressed
	}
	return map[string]string{
		"producerGroup": "idemq", "topic": resource, "defaultTopic": "TBW102", "defaultTopicQueueNums": "1",
		"sysFlag": strconv.Itoa(flag), "bornTimestamp": strconv.FormatInt(time.Now().UnixMilli(), 10), "flag": "0",
		"properties": text.String(), "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
	}, body, nil
}
