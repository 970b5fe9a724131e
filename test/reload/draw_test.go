package reload_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/rules"
)

// A drawer draws rules of a site.
type drawer struct {
	*rand.Rand
	*site
}

// sharedPrefix begins the IDs of the rules that all callers share.
const sharedPrefix = "shared-"

// sharedRule is one whose limit lasts: it admits so many in all, as nothing comes back of it while a test
// runs, for up to 20 hours.
func sharedRule(i int, capacity int64) rules.Rule {
	const long = bounds.MaxPeriod
	slowly := stint.Every(20 * time.Hour)
	limits := []stint.Limit{
		stint.TokenBucket(capacity, slowly), stint.LeakyBucket(capacity, slowly),
		stint.FixedWindow(capacity, long).FromFirst(), stint.SlidingWindowLog(capacity, long), stint.SlidingWindowCounter(capacity, long),
	}
	return rules.Rule{
		ID: sharedPrefix + strconv.Itoa(i), Priority: i % 3, Match: rules.Match{Paths: []string{fmt.Sprintf("/shared/%d", i)}},
		Scope: []string{rules.Global}, Limits: limits[i%len(limits) : i%len(limits)+1],
	}
}

// laneRules are global rules for the host of one caller, one of each algorithm.
func (d *drawer) laneRules(caller int) (list []rules.Rule) {
	paths := []string{"/*/items/{id}", "/*/items", "/*/teams/{team}/**", "/*/files/**", "/*/search"}
	for i, algorithm := range notation.Algorithms() {
		list = append(list, rules.Rule{
			ID: fmt.Sprintf("lane%d-%s", caller, algorithm), Priority: d.IntN(5),
			Match: rules.Match{Hosts: []string{lane(caller)}, Paths: []string{paths[i]}}, Scope: []string{rules.Global},
			Limits: []stint.Limit{d.limit(algorithm, 50)},
		})
	}
	return list
}

// everywhereRules hold for whatever is asked, what all callers share among it.
func (d *drawer) everywhereRules() []rules.Rule {
	bucket := rules.Rule{
		ID: "everywhere-bucket", Match: rules.Match{Methods: []string{http.MethodGet}}, Scope: []string{rules.PerIP},
		Limits: []stint.Limit{d.limit(stint.AlgorithmTokenBucket, 3)},
	}
	log := rules.Rule{
		ID: "everywhere-log", Match: rules.Match{Methods: []string{http.MethodPost}}, Scope: []string{rules.PerUser}, Missing: rules.MissingIP,
		Limits: []stint.Limit{d.limit(stint.AlgorithmSlidingWindowLog, 3).CountingDenied()},
	}
	shadow := rules.Rule{
		ID: "everywhere-shadow", Match: rules.Match{Methods: []string{http.MethodPut}}, Scope: []string{rules.Custom("tenant")}, Missing: rules.MissingSkip,
		Limits: []stint.Limit{stint.FixedWindow(3, time.Hour)}, OnExceed: rules.Shadow,
	}
	banned := rules.Rule{
		ID: "everywhere-banned", Match: rules.Match{Paths: []string{"/*/search"}, Methods: []string{http.MethodPut}}, Scope: []string{rules.PerIP}, Banned: true,
	}
	return []rules.Rule{bucket, log, shadow, banned}
}

// sectionRule is a rule of a section or, at times, of all.
func (d *drawer) sectionRule(id string) rules.Rule {
	section := d.IntN(d.sections)
	at := "/s" + strconv.Itoa(section)
	if in(d.Rand, 2) {
		at = "/*"
	}
	r := rules.Rule{ID: id, Priority: d.IntN(5), Match: rules.Match{Paths: []string{at + pick(d.Rand,
		"/items/{id}", "/items", "/teams/{team}/**", "/teams/{team}/docs/*", "/files/**", "/search", "/**", "/*")}}}
	if in(d.Rand, 30) {
		r.Match.Hosts = []string{pick(d.Rand, "api.example.com", "*.example.com", "API.example.org")}
	}
	d.rematch(&r)
	d.rescope(&r)
	switch d.IntN(10) {
	case 0:
		r.Cost.Permits = 2
	case 1:
		r.Cost = rules.Cost{Header: "x-cost"}
	case 2:
		r.Cost = rules.Cost{Attribute: "size", Permits: 2}
	}
	if in(d.Rand, 15) {
		r.OnExceed = rules.Shadow
	}
	switch d.IntN(50) {
	case 0:
		r.Unlimited = true
	case 1: // of few requests
		r.Banned, r.Match.Methods, r.Match.Headers = true, []string{http.MethodPut}, map[string]string{"x-plan": "free"}
	default:
		d.relimit(&r)
	}
	if in(d.Rand, 25) {
		d.override(&r, section)
	}
	return r
}

// rematch draws the methods and header fields that a rule is for.
func (d *drawer) rematch(r *rules.Rule) {
	r.Match.Methods = pick(d.Rand, nil, nil, []string{http.MethodGet}, []string{http.MethodPost, http.MethodGet}, []string{http.MethodPut})
	r.Match.Headers = pick(d.Rand, nil, nil, nil, map[string]string{"x-plan": "free"}, map[string]string{"X-Plan": "*"})
}

// rescope draws whom a rule counts. All of them belong to one caller.
func (d *drawer) rescope(r *rules.Rule) {
	tenant := rules.Custom("tenant")
	r.Scope = pick(d.Rand, []string{rules.PerIP}, []string{rules.PerUser}, []string{rules.PerAPIKey}, []string{tenant},
		[]string{rules.PerIP, tenant}, []string{rules.PerUser, rules.PerAPIKey})
	if newKnown(r).hasTeam() && in(d.Rand, 40) {
		r.Scope = pick(d.Rand, []string{rules.Custom("team")}, []string{tenant, rules.Custom("team")})
	}
	r.Missing = pick(d.Rand, rules.MissingSkip, rules.MissingSkip, rules.MissingSkip, rules.MissingIP, rules.MissingIP, rules.MissingDeny)
	if len(r.Scope) == 1 && r.Scope[0] == rules.PerIP {
		r.Missing = rules.MissingDeny
	}
	r.Overrides = nil // which name clients by the scope
}

// relimit draws one to three limits.
func (d *drawer) relimit(r *rules.Rule) {
	r.Limits = nil
	for i := range pick(d.Rand, 1, 1, 1, 2, 3) {
		limit := d.limit(pick(d.Rand, notation.Algorithms()...), 1)
		if i > 0 {
			limit = limit.Named("limit" + strconv.Itoa(i))
		}
		r.Limits = append(r.Limits, limit)
	}
}

// limit draws a limit that admits and denies; times is by how much it is larger.
func (d *drawer) limit(algorithm stint.Algorithm, times int64) stint.Limit {
	capacity := times * (2 + d.Int64N(7))
	rate := stint.Per(times*(1+d.Int64N(5)), pick(d.Rand, 100*time.Millisecond, time.Second, 7*time.Second))
	window := pick(d.Rand, 200*time.Millisecond, time.Second, 10*time.Second, time.Minute)
	switch algorithm {
	case stint.AlgorithmTokenBucket:
		return stint.TokenBucket(capacity, rate)
	case stint.AlgorithmLeakyBucket:
		return stint.LeakyBucket(capacity, rate)
	case stint.AlgorithmFixedWindow:
		if in(d.Rand, 10) {
			return stint.CalendarWindow(capacity, stint.CalendarMinute, "Asia/Kathmandu")
		}
		return stint.FixedWindow(capacity, window)
	case stint.AlgorithmSlidingWindowLog:
		limit := stint.SlidingWindowLog(capacity, window)
		if in(d.Rand, 20) {
			limit = limit.WithMinInterval(3 * time.Millisecond)
		}
		if in(d.Rand, 20) {
			limit = limit.CountingDenied()
		}
		return limit
	default:
		return stint.SlidingWindowCounter(capacity, window)
	}
}

// override lets something else hold for some of the section's clients that ask most.
func (d *drawer) override(r *rules.Rule, section int) {
	r.Overrides = nil
	for caller := range min(d.callers, 6) {
		address, user, _ := d.identities(caller, section)
		parts := map[string]string{rules.PerIP: address, rules.PerUser: user, rules.Custom("tenant"): d.tenant(caller, section)}
		var of []string
		for _, scope := range r.Scope {
			if part, known := parts[scope]; known {
				of = append(of, part)
			}
		}
		if len(of) != len(r.Scope) {
			return
		}
		o := rules.Override{Key: rules.JoinKey(of...)}
		switch d.IntN(5) {
		case 0:
			o.Unlimited = true
		case 1:
			o.Banned = true
		default:
			o.Limits = []stint.Limit{d.limit(pick(d.Rand, notation.Algorithms()...), 3)}
		}
		r.Overrides = append(r.Overrides, o)
	}
}
