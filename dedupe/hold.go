package dedupe

import (
	"context"
	"errors"
	"sync"
	"time"
)

// hold is one run of a handler: the claims under which it runs, and its context.
type hold struct {
	guard  *Guard
	claims []*Claim
	cancel context.CancelCauseFunc

	once     sync.Once
	returned chan struct{} // closed when the handler has returned

	mu     sync.Mutex
	lost   error
	expiry *time.Timer // nil in Transactional, where a lost lease cancels nothing
}

// Hold returns the handler's context: it carries the claim (if there is one only), and ends with ErrLeaseLost as its cause when a
// lease is lost, in the modes in which the lease protects the effect (not Transactional, where the row does). The claims are
// renewed at a third of their lease until the returned func is called, which is to be after they are settled; it reports
// whether a lease was lost. A lease may be over already, when the process stood still since the claim: the context has ended then, and
// the handler is not to be run. A handler that goes on for StopGrace after its context ended is named in the log and renewed no more.
func (g *Guard) Hold(ctx context.Context, claims ...*Claim) (context.Context, func() error) {
	hctx, cancel := context.WithCancelCause(withClaims(ctx, claims))
	h := &hold{guard: g, claims: claims, cancel: cancel, returned: make(chan struct{})}
	for _, c := range claims {
		c.mu.Lock()
		c.hold = h
		c.mu.Unlock()
	}
	if g.renewable() && len(claims) > 0 {
		h.watchExpiry()
		g.renewer.add(h)
	}
	unwatch := context.AfterFunc(hctx, h.watchOverrun)
	return hctx, func() error {
		unwatch()
		h.handlerReturned()
		g.renewer.remove(h)
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.expiry != nil {
			h.expiry.Stop()
		}
		cancel(context.Canceled)
		return h.lost
	}
}

// renewable says whether claims have leases at all.
func (g *Guard) renewable() bool { return g.cfg.Store != nil || g.cfg.Mode == Logged }

func (h *hold) handlerReturned() { h.once.Do(func() { close(h.returned) }) }

// watchExpiry ends the handler's context when the oldest lease is over by our own monotonic clock, counted from the sending of the
// statement that made it last.
func (h *hold) watchExpiry() {
	if h.guard.cfg.Mode == Transactional {
		return
	}
	left := time.Until(h.oldest().Add(h.guard.cfg.Lease))
	if left <= 0 || suspended(h.oldest(), h.guard.cfg.Lease) { // the process stood still since the claim: the handler must not begin
		h.lose(h.claims[0])
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expiry = time.AfterFunc(left, h.expire)
}

func (h *hold) oldest() time.Time {
	var oldest time.Time
	for _, c := range h.claims {
		if t := c.lastSent(); oldest.IsZero() || t.Before(oldest) {
			oldest = t
		}
	}
	return oldest
}

func (h *hold) expire() {
	if left := time.Until(h.oldest().Add(h.guard.cfg.Lease)); left > 0 { // renewed just now
		h.mu.Lock()
		defer h.mu.Unlock()
		h.expiry.Reset(left)
		return
	}
	h.lose(h.claims[0])
}

// lose ends the handler's context. Late success is still completed, if nobody took the claim. Once the handler has returned there is nothing
// to end: what became of the claim is in the store's answer to Complete or Release.
func (h *hold) lose(c *Claim) {
	select {
	case <-h.returned:
		return
	default:
	}
	h.mu.Lock()
	first := h.lost == nil
	if first {
		h.lost = opError("hold", c.key, ErrLeaseLost)
	}
	h.mu.Unlock()
	if !first {
		return
	}
	h.cancel(h.lost)
	h.guard.leaseLost(context.Background(), c.key)
}

// watchOverrun runs when the handler's context has ended.
func (h *hold) watchOverrun() {
	grace := time.NewTimer(h.guard.cfg.StopGrace)
	defer grace.Stop()
	select {
	case <-h.returned:
	case <-grace.C:
		h.guard.renewer.remove(h)
		var k Key
		if len(h.claims) > 0 {
			k = h.claims[0].key
		}
		h.guard.anomaly(context.Background(), "handler-overrun", k, errOverrun)
	}
}

var errOverrun = errors.New("handler goes on although its context ended; it must return when ctx is done")

func (c *Claim) lastSent() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent
}

func (c *Claim) renewed(sent time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = sent
}

// renewer renews all claims of a guard that are in flight, together. Its goroutine lives only while there are any.
type renewer struct {
	guard *Guard

	mu   sync.Mutex
	held map[*hold]struct{}
	stop chan struct{} // closed when held becomes empty
}

func (r *renewer) add(h *hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.held) == 0 {
		r.held = map[*hold]struct{}{}
		r.stop = make(chan struct{})
		go r.run(r.stop)
	}
	r.held[h] = struct{}{}
}

func (r *renewer) remove(h *hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.held[h]; !ok {
		return
	}
	delete(r.held, h)
	if len(r.held) == 0 {
		close(r.stop)
	}
}

func (r *renewer) run(stop chan struct{}) {
	period := r.guard.cfg.Lease / 3
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			ctx, cancel := context.WithTimeout(context.Background(), period)
			r.renew(ctx)
			cancel()
		}
	}
}

// due lists the claims whose lease is not brand-new, so that a claim is renewed before half of its lease is over.
func (r *renewer) due() (due []*Claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for h := range r.held {
		for _, c := range h.claims {
			if time.Since(c.lastSent()) > r.guard.cfg.Lease/6 {
				due = append(due, c)
			}
		}
	}
	return due
}

func (r *renewer) renew(ctx context.Context) {
	g, due := r.guard, r.due()
	if len(due) == 0 {
		return
	}
	if g.cfg.Mode != Transactional {
		store, name := g.authority()
		sent := time.Now()
		for i, rep := range ask(ctx, g, name, "renew", store.Renew, g.renewals(due)...) {
			c := due[i]
			switch {
			case rep.Err == nil:
				c.renewed(sent)
			case errors.Is(rep.Err, ErrStale), suspended(c.lastSent(), g.cfg.Lease):
				c.lose()
			default: // no answer: the lease runs on, and ends by our own clock
				g.cfg.Logger.DebugContext(ctx, "lease not renewed", "key", c.key, "err", rep.Err)
			}
		}
	}
	if g.cfg.Mode == RedisOnly || g.cfg.Store == nil {
		return
	}
	var inStore []*Claim
	for _, c := range due {
		if c.inStore {
			inStore = append(inStore, c)
		}
	}
	sent := time.Now()
	for i, rep := range ask(ctx, g, storeRedis, "renew", g.cfg.Store.Renew, g.renewals(inStore)...) {
		if rep.Err == nil && g.cfg.Mode == Transactional {
			inStore[i].renewed(sent)
		}
	}
}

func (g *Guard) renewals(cs []*Claim) []RenewRequest {
	reqs := make([]RenewRequest, len(cs))
	for i, c := range cs {
		reqs[i] = RenewRequest{Grip: c.grip(), Lease: g.cfg.Lease}
	}
	return reqs
}

func (c *Claim) lose() {
	c.mu.Lock()
	h := c.hold
	c.mu.Unlock()
	if h != nil {
		h.lose(c)
	}
}

// suspended says that the wall clock ran ahead of the monotonic one by so much that the lease is over: a suspended machine, whose
// monotonic clock stood still.
func suspended(since time.Time, lease time.Duration) bool {
	now := time.Now()
	wall := now.Round(0).Sub(since.Round(0))
	return wall >= lease && wall-now.Sub(since) > time.Second
}

// authority is who decides in this mode, and its name in hooks.
func (g *Guard) authority() (Store, string) {
	if g.cfg.Mode == RedisOnly {
		return g.cfg.Store, storeRedis
	}
	return g.cfg.Log, storeLog
}
