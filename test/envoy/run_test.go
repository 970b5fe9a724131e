package envoy_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
)

// A variant is an environment that both sides run in.
type variant struct {
	name                 string
	environment          []string
	shadow, quota, merge bool
	first, domains       int     // the number of the first domain, and how many there are
	share                float64 // of all requests
}

var variants = []variant{
	{name: "plain", domains: 1000, share: 0.8},
	{
		name: "stop", first: 1000, domains: 50, share: 0.05,
		environment: []string{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT=true"},
	},
	{name: "shadow", first: 2000, domains: 50, share: 0.05, environment: []string{"SHADOW_MODE=true"}, shadow: true},
	{name: "quota", first: 3000, domains: 50, share: 0.05, environment: []string{"QUOTA_MODE=true"}, quota: true},
	{name: "merge", first: 4000, domains: 50, share: 0.05, environment: []string{"MERGE_DOMAIN_CONFIG=true"}, merge: true},
}

// configuration writes the files of domains that get so many requests. With merge, a domain's descriptors are in two
// files.
func configuration(v variant, domains []*domain, requests int) map[string]string {
	byName := make(map[string]string)
	for _, d := range domains {
		d.generations = generationsFor(requests / len(domains))
		for generation := range d.generations {
			name, here, there := d.nameOf(generation), d.descriptors, []*descriptor(nil)
			if v.merge {
				here, there = parts(d.descriptors)
			}
			byName[name+".yaml"] = yaml(name, here)
			if len(there) > 0 {
				byName[name+"-more.yaml"] = yaml(name, there)
			}
		}
	}
	return byName
}

// parts splits the descriptors of a domain. All wildcards are in the first part: the reference reads files in random
// order, and takes the first wildcard that matches.
func parts(all []*descriptor) (here, there []*descriptor) {
	for i, d := range all {
		if i%2 == 0 || d.wildcard() {
			here = append(here, d)
		} else {
			there = append(there, d)
		}
	}
	return here, there
}

// A comparison sends random requests to both sides.
type comparison struct {
	seed               uint64
	variant            variant
	domains            []*domain
	reference, subject *side
	meant              bool                         // whether the subject is to answer with the differences that are meant
	plant              func(*rls.RateLimitResponse) // makes a difference in an answer of the subject

	asked, repeated, over, matched, failed atomic.Int64

	mu    sync.Mutex
	used  map[string]int // how often each difference was meant
	found []string       // differences that are not meant
}

// mostDifferences ends a comparison.
const mostDifferences = 20

// newComparison draws domains for so many requests, and starts both sides with them.
func newComparison(t *testing.T, seed uint64, v variant, collides bool, requests int) *comparison {
	t.Helper()
	c := drawComparison(seed, v, collides)
	c.meant = !programs.same
	c.reference, c.subject = pair(t, files(t, configuration(v, c.domains, requests)), v.environment...)
	return c
}

func drawComparison(seed uint64, v variant, collides bool) *comparison {
	c := &comparison{seed: seed, variant: v, used: make(map[string]int)}
	for i := range v.domains {
		c.domains = append(c.domains, drawDomain(seed, v.first+i, collides))
	}
	return c
}

// send sends so many requests, by several workers, each of which has domains of its own and its part of the requests,
// so that a seed always draws the same requests of a domain in the same order.
func (c *comparison) send(ctx context.Context, requests int) {
	const (
		workers = 16
		burst   = 20 // how many requests a domain gets in a row
	)
	var group sync.WaitGroup
	for worker := range workers {
		from, to := len(c.domains)*worker/workers, len(c.domains)*(worker+1)/workers
		own := slices.Clone(c.domains[from:to])
		part := requests*to/len(c.domains) - requests*from/len(c.domains)
		random := rand.New(rand.NewPCG(c.seed, 1<<32+uint64(worker)))
		group.Go(func() {
			for sent := 0; sent < part; {
				random.Shuffle(len(own), func(i, j int) { own[i], own[j] = own[j], own[i] })
				for _, d := range own {
					for range min(burst, part-sent) {
						sent++
						c.one(ctx, d)
					}
				}
			}
		})
	}
	group.Wait()
}

// one compares the answers to the next request of a domain.
func (c *comparison) one(ctx context.Context, d *domain) {
	if d.retired || d.generation == d.generations || ctx.Err() != nil || c.full() {
		return
	}
	e := exchange{variant: c.variant, request: d.draw()}
	unit := time.Minute // all longer windows end with a minute
	if d.seconds {
		unit = time.Second
	}
	var reference, subject answer
	for {
		avoidEnd(ctx, unit)
		e.before = time.Now()
		reference, subject = c.reference.ask(ctx, e.request), c.subject.ask(ctx, e.request)
		e.after = time.Now()
		if !e.straddles(unit) {
			break
		}
		c.repeated.Add(1)
		d.generation++
		if d.generation == d.generations {
			return
		}
		if _, ours := strings.CutPrefix(e.request.GetDomain(), "d"); ours {
			e.request.Domain = d.name()
		}
	}
	if ctx.Err() != nil {
		return
	}
	c.asked.Add(1)
	c.count(reference)
	c.judge(d, e, reference, subject)
}

// avoidEnd waits where a window is about to end, until it has.
func avoidEnd(ctx context.Context, unit time.Duration) {
	const near = 60 * time.Millisecond
	at := time.Now()
	passed := time.Duration(at.UnixNano() % int64(unit))
	wait := 2*slack - passed
	if left := unit - passed; left < near {
		wait = left + 2*slack
	}
	if wait <= 0 {
		return
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
}

// count counts what the requests come to, to see that they try much.
func (c *comparison) count(reference answer) {
	if reference.err != nil {
		c.failed.Add(1)
		return
	}
	statuses := reference.response.GetStatuses()
	if slices.ContainsFunc(statuses, limited) {
		c.matched.Add(1)
	}
	if len(violations(reference.response)) > 0 || slices.ContainsFunc(statuses, over) {
		c.over.Add(1)
	}
}

func limited(status *rls.RateLimitResponse_DescriptorStatus) bool {
	return status.GetCurrentLimit() != nil
}

func over(status *rls.RateLimitResponse_DescriptorStatus) bool {
	return status.GetCode() == rls.RateLimitResponse_OVER_LIMIT
}

// judge notes the difference between the answers, if it is not meant. The domain is left alone from then on, as its
// counters may differ, too.
func (c *comparison) judge(d *domain, e exchange, reference, subject answer) {
	if c.plant != nil && subject.err == nil {
		subject.response = proto.CloneOf(subject.response)
		c.plant(subject.response)
	}
	want, names := e.expect(reference)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		c.used[name]++
	}
	if !c.meant {
		want = reference
	}
	differing := e.compare(want, subject)
	if len(differing) == 0 {
		return
	}
	d.retired = true
	report := &strings.Builder{}
	fmt.Fprintf(report, "seed %d, environment %v, domain number %d, at %s:\n  %s%s\n", c.seed, c.variant.environment,
		d.number, e.before.UTC().Format(time.RFC3339Nano), strings.Join(differing, "\n  "), describe(names))
	fmt.Fprintf(report, "%s\nrequest: %s\nreference: %s\nsubject: %s\n", yaml(d.name(), d.descriptors),
		text(e.request), show(reference), show(subject))
	c.found = append(c.found, report.String())
}

func (c *comparison) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.found) >= mostDifferences
}
