package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/server"
)

// A pair is a set of which two rules belong together; kept is in both.
type pair struct {
	name  string
	rules []rules.Rule
}

// matched are the rules that hold for each request by the pair.
func (p pair) matched() []string { return []string{p.name + "1", p.name + "2", "kept"} }

// What the rules of a pair admit, and what the rule does that is in both.
const (
	pairAdmits = 1200
	keptAdmits = 2000
)

func newPair(name string) pair {
	rule := func(id string, limit int64, priority int) rules.Rule {
		return rules.Rule{
			ID: id, Priority: priority, Scope: []string{rules.Global}, Limits: []stint.Limit{stint.FixedWindow(limit, 365*24*time.Hour)},
		}
	}
	return pair{name, []rules.Rule{rule(name+"1", pairAdmits, 3), rule(name+"2", 2*pairAdmits, 2), rule("kept", keptAdmits, 1)}}
}

// swap puts the pair in force.
func (p pair) swap(t *testing.T, s *server.Server, previous *rules.Set) *rules.Set {
	t.Helper()
	set, err := rules.Compile(p.rules, rules.Options{Previous: previous})
	if err != nil {
		t.Error(err)
		return previous
	}
	s.SwapRules(set)
	return set
}

// tallies count what was admitted by each of two pairs.
type tallies struct {
	pairs    [2]pair
	admitted [2]atomic.Int64
	denied   atomic.Int64
}

// note takes an answer in, which must be by the whole of one pair.
func (n *tallies) note(status int, e api.EvaluateResponse) error {
	at := slices.IndexFunc(n.pairs[:], func(p pair) bool { return slices.Equal(p.matched(), e.Matched) })
	if at < 0 {
		return fmt.Errorf("matched are %v, not those of one set", e.Matched)
	}
	if !slices.Contains(e.Matched, e.Rule) || e.Allowed != (status == http.StatusOK) {
		return fmt.Errorf("%d, allowed %v, by %s", status, e.Allowed, e.Rule)
	}
	if e.Allowed {
		n.admitted[at].Add(1)
	} else {
		n.denied.Add(1)
	}
	return nil
}

// A keeper is a caller that keeps its connection; one that is closed is an error.
type keeper struct {
	conn   net.Conn
	reader *bufio.Reader
}

func newKeeper(t *testing.T, s *server.Server) *keeper {
	t.Helper()
	conn := must.Get(new(net.Dialer).DialContext(t.Context(), "tcp", s.Addr().String()))(t)
	t.Cleanup(func() { _ = conn.Close() })
	const patience = 2 * time.Minute
	must.Do(t, conn.SetDeadline(time.Now().Add(patience)))
	return &keeper{conn, bufio.NewReader(conn)}
}

// ask evaluates a request.
func (k *keeper) ask(ctx context.Context) (int, api.EvaluateResponse, error) {
	var e api.EvaluateResponse
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://localhost"+evaluate, strings.NewReader(`{"path":"/"}`))
	if err != nil {
		return 0, e, err
	}
	if err := request.Write(k.conn); err != nil {
		return 0, e, err
	}
	response, err := http.ReadResponse(k.reader, request)
	if err != nil {
		return 0, e, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, e, err
	}
	if response.Close || response.StatusCode != http.StatusOK && response.StatusCode != http.StatusTooManyRequests {
		return 0, e, fmt.Errorf("%d %s, and the connection is closed: %v", response.StatusCode, body, response.Close)
	}
	return response.StatusCode, e, json.Unmarshal(body, &e)
}

// While 512 callers have requests evaluated, set after set is put in force: no request is turned away and no connection
// lost, each answer is by one whole set, and every limit admits exactly what it says.
func TestReloadUnderLoad(t *testing.T) {
	const callers, each, perSwap = 512, 16, 32
	n := &tallies{pairs: [2]pair{newPair("a"), newPair("b")}}
	first := must.Get(rules.Compile(n.pairs[0].rules, rules.Options{}))(t)
	r := run(t, func(c *server.Config) { c.Rules = first })
	var answered atomic.Int64
	due := make(chan struct{})
	var load sync.WaitGroup
	for range callers {
		k := newKeeper(t, r.server)
		load.Go(func() {
			for range each {
				status, e, err := k.ask(t.Context())
				if err == nil {
					err = n.note(status, e)
				}
				if err != nil {
					t.Error(err)
				}
				if answered.Add(1)%perSwap == 0 {
					due <- struct{}{}
				}
			}
		})
	}
	set := first
	for i := range callers * each / perSwap {
		<-due
		set = n.pairs[(i+1)%2].swap(t, r.server, set)
	}
	load.Wait()
	// The load left these permits.
	k := newKeeper(t, r.server)
	for _, p := range n.pairs {
		set = p.swap(t, r.server, set)
		for allowed := true; allowed; {
			status, e, err := k.ask(t.Context())
			if err == nil {
				err = n.note(status, e)
			}
			if err != nil {
				t.Fatal(err)
			}
			if allowed = e.Allowed; !slices.Equal(e.Matched, p.matched()) {
				t.Fatalf("matched are %v, want %v: they were put in force before", e.Matched, p.matched())
			}
		}
	}
	a, b := n.admitted[0].Load(), n.admitted[1].Load()
	if a > pairAdmits || b > pairAdmits || a+b != keptAdmits {
		t.Errorf("%d and %d were admitted; want at most %d each, and %d together", a, b, pairAdmits, keptAdmits)
	}
	for i, p := range n.pairs {
		n.left(t, r.store, p, n.admitted[i].Load())
	}
	if strings.Contains(r.log.String(), "level=ERROR") {
		t.Errorf("the log has errors:\n%s", r.log)
	}
}

// left checks what the store has left of a pair's rules.
func (n *tallies) left(t *testing.T, s *store, p pair, admitted int64) {
	t.Helper()
	for _, rule := range p.rules[:2] {
		policy := must.Get(stint.NewPolicy(rules.PolicyPrefix+rule.ID, rule.Limits...))(t)
		d, err := s.Decide(t.Context(), stint.Op{Verb: stint.VerbPeek, Claim: stint.Claim{Key: "*", Policy: policy, Permits: 1}})
		if err != nil || d.Remaining != rule.Limits[0].Capacity-admitted {
			t.Errorf("%s: %d remain, %v, want %d less %d", rule.ID, d.Remaining, err, rule.Limits[0].Capacity, admitted)
		}
	}
}
