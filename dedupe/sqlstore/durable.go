package sqlstore

import (
	"context"
	"fmt"

	"github.com/idemq/idemq/dedupe"
)

// undone is what a crash of the database does to messages whose commit was not on the disk yet. Redis and the broker's offsets outlive it.
var undone = map[dedupe.Mode]string{
	dedupe.Transactional: "takes back rows and effects of messages that are acknowledged already: they are lost",
	dedupe.Logged:        "takes back rows whose effects are done: where Redis has forgotten them too, messages are applied again",
}

// checkDurable warns of settings by which a commit is answered before it is on the disk.
func (l *Log) checkDurable(ctx context.Context, mode dedupe.Mode) (fs []dedupe.Finding, err error) {
	after, known := undone[mode]
	if !known {
		after = "takes back what was committed last"
	}
	err = l.alone(ctx, func(ctx context.Context, q querier) error {
		fs = nil
		rows, err := q.QueryContext(ctx, l.plain["check_durable"].query)
		if err != nil {
			return err
		}
		defer rows.Close() //nolint:errcheck // Err says what went wrong
		for rows.Next() {
			var name, setting, needed string
			if err := rows.Scan(&name, &setting, &needed); err != nil {
				return err
			}
			fs = append(fs, dedupe.Finding{
				Code:   "log-not-durable",
				What:   fmt.Sprintf("%s = %s: a commit is answered before it is on the disk, and a crash of the database %s", name, setting, after),
				Remedy: fmt.Sprintf("set %s = %s where it was changed: for the server, the database, the role or the connection", name, needed),
			})
		}
		return rows.Err()
	})
	return fs, err
}
