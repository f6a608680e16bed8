package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// leaveTimeout is how long leaving the group may take, which can mean waiting for a join that is under way. Then its connections are
// closed, and the group notices when the session ends.
const leaveTimeout = 5 * time.Second

// memberOf joins the group and works through its generations, one session each, until ctx ends (nil) or a session fails.
func (r *run) memberOf(ctx context.Context) error {
	cg, err := kafkago.NewConsumerGroup(kafkago.ConsumerGroupConfig{
		ID:                r.cfg.Group,
		Brokers:           r.cfg.Brokers,
		Dialer:            r.cluster.dialer,
		Topics:            r.plan.topics(),
		SessionTimeout:    r.cfg.Session,
		HeartbeatInterval: heartbeat(r.cfg.Session),
		RebalanceTimeout:  r.cfg.Rebalance,
		JoinGroupBackoff:  joinBackoff, // the default of 5 s would be felt at every hiccup
		StartOffset:       kafkago.FirstOffset,
		Logger:            kafkago.LoggerFunc(r.debugf),
		ErrorLogger:       kafkago.LoggerFunc(r.debugf), // errors come out of Next too
	})
	if err != nil {
		return fmt.Errorf("kafka: join group %q: %w", r.cfg.Group, err)
	}
	defer r.leave(cg)
	var told time.Time
	for {
		gen, err := cg.Next(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if err := r.joinProblem(ctx, err, &told); err != nil {
				return err
			}
			continue
		}
		told = time.Time{}
		s := newSession(r, gen)
		gen.Start(s.main)
		<-s.finished
		if err := s.failure(); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// heartbeat is a third of the session, as kafka-go advises, at most its default.
func heartbeat(session time.Duration) time.Duration { return min(session/3, 3*time.Second) }

// joinProblem decides about an error of Next: nil means that kafka-go tries again by itself. The same trouble is told every 30 s.
func (r *run) joinProblem(ctx context.Context, err error, told *time.Time) error {
	refused := func(format string, args ...any) error {
		return fmt.Errorf("kafka: join group %q: "+format, append([]any{r.cfg.Group}, args...)...)
	}
	switch {
	case errors.Is(err, kafkago.InvalidSessionTimeout):
		return refused("%w: Config.Session %v: %s", err, r.cfg.Session, sessionRemedy(r.cfg.Session))
	case errors.Is(err, kafkago.GroupAuthorizationFailed):
		return refused("%w; allow this user to Read the group", err)
	case errors.Is(err, kafkago.TopicAuthorizationFailed):
		return refused("%w; allow this user to Read the topics", err)
	case errors.Is(err, kafkago.InconsistentGroupProtocol):
		return refused("%w; consumers of another kind are in this group: use a group of its own", err)
	case errors.Is(err, kafkago.InvalidGroupId):
		return refused("%w; choose another Config.Group", err)
	case errors.Is(err, kafkago.RebalanceInProgress), errors.Is(err, kafkago.GroupCoordinatorNotAvailable),
		errors.Is(err, kafkago.NotCoordinatorForGroup), errors.Is(err, kafkago.GroupLoadInProgress):
		r.log.DebugContext(ctx, "group is not ready; trying again", "group", r.cfg.Group, "err", err) // normal on a fresh cluster and in a rebalance
	case time.Since(*told) > 30*time.Second:
		*told = time.Now()
		r.log.WarnContext(ctx, "cannot join the group; trying again", "group", r.cfg.Group, "err", err)
	}
	return nil
}

// What brokers accept unless they are set up otherwise.
const (
	leastSession = 6 * time.Second
	mostSession  = 30 * time.Minute
)

// sessionRemedy is for a session that the broker refused, without telling why.
func sessionRemedy(session time.Duration) string {
	remedy := "look them up"
	switch {
	case session < leastSession:
		remedy = "use 6s or more, or lower group.min.session.timeout.ms"
	case session > mostSession:
		remedy = "use 30m or less, or raise group.max.session.timeout.ms"
	}
	return "the broker takes group.min.session.timeout.ms (default 6s) to group.max.session.timeout.ms (default 30m); " + remedy
}

// leave ends the membership. Everything in flight has been settled and committed before.
func (r *run) leave(cg *kafkago.ConsumerGroup) {
	t := time.AfterFunc(leaveTimeout, r.cluster.dials.close)
	defer t.Stop()
	cg.Close() //nolint:errcheck // always nil
}

func (r *run) debugf(format string, args ...any) {
	r.log.Debug("kafka-go", "says", strings.TrimSpace(fmt.Sprintf(format, args...)))
}
