// Package rls is Envoy's rate limit service, version 3: descriptors in, decisions out, over gRPC and as JSON, by limits
// that are configured as those of the reference service are.
//
//	service, err := rls.New(rls.Config{Store: store, Accounting: domains.Atomic})
//	...
//	err = service.Swap(list) // of *domains.Domain
//
// A descriptor is decided by the limit that its entries lead to. In the atomic accounting all
// descriptors of a request are one operation of the store: what is denied consumes nothing
// anywhere. In the reference accounting each descriptor counts by itself, also when it or another
// one is denied, as the reference service has it. A limit may name its own.
package rls

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/ends"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/service/internal/logsampler"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

// MaxDescriptors bounds the descriptors of one request.
const MaxDescriptors = 256

// A Config says how a [Service] is made. Store has no default.
//
// The fields but Store, Observe, Enter and Logger are the reference service's settings, with its
// defaults. A Config is not changed after [New].
type Config struct {
	// Store decides. It must not be nil, and must not touch an operation's slices once it has
	// returned.
	Store stint.Store
	// Accounting is that of limits that name none. Default: "", which is atomic.
	Accounting domains.Accounting
	// MergeDomains makes one domain of all that have one name. Default: false, that is a fault.
	MergeDomains bool
	// Shadow admits every request that would be denied; the statuses of descriptors say what was
	// decided.
	Shadow bool
	// Quota has all limits in quota mode.
	Quota bool
	// KeepDenied counts in the reference accounting only the descriptors that deny a request, if one does. Default:
	// false, all count. (STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT is this.)
	KeepDenied bool
	// Headers are added to responses. Default: the zero value, none.
	Headers Headers
	// Metadata hands Envoy the request and the metadata of its limits. Default: false.
	Metadata bool
	// NearRatio is the part of a limit from which on hits count as near it, 0 to 1. Default: 0, which
	// is 0.8.
	NearRatio float32

	// Observe is told of every request that a limit decided, and of each limit in shadow, which with Shadow all are.
	// Default: nil, nobody. It is called by the goroutine that answers.
	Observe stint.Observer
	// Enter waits until the work of a request may begin, and returns the context by which it is decided and what ends it.
	// An error that wraps stint.ErrOverloaded refuses the request. Default: nil, at once.
	Enter func(ctx context.Context, cost int64) (_ context.Context, leave func(), err error)
	// Overloaded is told of each request that is refused as this process is too busy. Default: nil, nobody.
	Overloaded func(error)
	// Logger is told of requests that are no good, a line in a second, and of configurations. Default:
	// nil, no log.
	Logger *slog.Logger
}

// Headers names the fields that are added to responses, each if it is not "".
type Headers struct{ Limit, Remaining, Reset string }

// A Service decides requests by domains. It is safe for concurrent use; make it with [New].
//
// A request's way: check, Enter, match (its limits by descriptor), decide (by the store), answer,
// observe. The tree of domains is replaced whole by [Service.Swap].
type Service struct {
	pb.UnimplementedRateLimitServiceServer

	config    Config
	tree      atomic.Pointer[tree] // nil before the first
	swapping  sync.Mutex
	stats     *statistics
	decisions sync.Pool // of *decision
	lines     *logsampler.Sampler
	ends      ends.Queue // commits that failed
}

// New makes a service that has no configuration yet, or reports what is wrong.
func New(config Config) (*Service, error) {
	if config.Store == nil {
		return nil, stint.Invalid("store", "nil", "a store such as memstore.New makes")
	}
	if config.Accounting == "" {
		config.Accounting = domains.Atomic
	}
	if config.Accounting != domains.Atomic && config.Accounting != domains.Reference {
		return nil, stint.Invalid("accounting", string(config.Accounting), "atomic or reference")
	}
	if config.NearRatio == 0 {
		config.NearRatio = 0.8
	}
	if config.NearRatio < 0 || config.NearRatio > 1 {
		return nil, stint.Invalid("near_limit_ratio", config.NearRatio, "0 to 1")
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{
		config: config, stats: newStatistics(), lines: logsampler.New(1, time.Second, nil),
		decisions: sync.Pool{New: func() any { return new(decision) }},
	}
	s.stats.commits = s.Commits
	return s, nil
}

// Collector is the service's statistics, under the reference service's names, and those of commits.
func (s *Service) Collector() prometheus.Collector { return s.stats }

// Warnings says what of domains is other than it looks in the service's accounting.
func (s *Service) Warnings(list []*domains.Domain) []string {
	if s.config.Accounting != domains.Reference {
		return nil
	}
	return domains.Joined(list)
}

// Swap puts domains in force, or reports what is wrong with them, and changes nothing then. A
// request is decided by one configuration as a whole. What was counted goes on counting under
// limits with the same unit.
func (s *Service) Swap(list []*domains.Domain) error {
	s.swapping.Lock()
	defer s.swapping.Unlock()
	var err error
	var next *tree
	if faults := domains.Validate(list, s.config.MergeDomains); len(faults) > 0 {
		err = fmt.Errorf("%w: %s", stint.ErrInvalid, joined(faults))
	} else {
		next, err = compile(list, s.config.Accounting, s.tree.Load())
	}
	if err != nil {
		return err
	}
	s.tree.Store(next)
	s.stats.loads.Add(1)
	return nil
}

// Refused counts a configuration that could not be put in force.
func (s *Service) Refused() { s.stats.failedLoads.Add(1) }

// Loaded reports whether there is a configuration, and of how many domains and limits.
func (s *Service) Loaded() (domains, limits int, loaded bool) {
	t := s.tree.Load()
	if t == nil {
		return 0, 0, false
	}
	return len(t.domains), t.limits, true
}

// Drain returns when no commit is left that failed and is sent again. What has not arrived when the context ends is
// given up; then the error wraps the context's.
func (s *Service) Drain(ctx context.Context) error { return s.ends.Drain(ctx) }

// Commits says how many commits wait to be sent again, and how many were given up.
func (s *Service) Commits() (waiting int, lost uint64) { return s.ends.Counts() }

// gaveUp logs that a commit is lost, a line in a second.
func (s *Service) gaveUp(err error) {
	if skipped, ok := s.lines.Admit(); ok {
		s.config.Logger.Warn("the commit of a stream is lost: its limits are not charged what it cost",
			"err", prefix.Trim(err.Error()), "skipped", skipped)
	}
}

// Dump lists the limits in force, one a line, as the reference service does.
func (s *Service) Dump() string {
	var lines []string
	if t := s.tree.Load(); t != nil {
		for _, d := range t.domains {
			for _, l := range d.made {
				lines = append(lines, fmt.Sprintf("%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t\n",
					l.id, strings.ToUpper(l.Unit.String()), l.RequestsPerUnit, l.shadow, l.quota))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// ShouldRateLimit implements [pb.RateLimitServiceServer]. Its errors have a code of gRPC:
// INVALID_ARGUMENT for a request that is no good, UNAVAILABLE while nothing can be decided,
// RESOURCE_EXHAUSTED while this process is too busy.
func (s *Service) ShouldRateLimit(ctx context.Context, r *pb.RateLimitRequest) (_ *pb.RateLimitResponse, err error) {
	start := time.Now()
	d, _ := s.decisions.Get().(*decision)
	defer func() {
		if fault := recover(); fault != nil {
			if skipped, ok := s.lines.Admit(); ok {
				s.config.Logger.Error("a request made the service panic", "fault", fault, "skipped", skipped)
			}
			err = status.Error(codes.Internal, "the service has a fault; its log says which")
		}
		s.stats.observe(start)
	}()
	response, err := s.should(ctx, r, d, start)
	if err != nil {
		return nil, s.failed(err)
	}
	d.clear() // one that failed does not come back, as the store may still read it
	s.decisions.Put(d)
	return response, nil
}

// should decides a request.
func (s *Service) should(
	ctx context.Context, r *pb.RateLimitRequest, d *decision, start time.Time,
) (*pb.RateLimitResponse, error) {
	t := s.tree.Load()
	if err := s.check(r, t); err != nil {
		return nil, err
	}
	if s.config.Enter != nil {
		entered, leave, err := s.config.Enter(ctx, costOf(r))
		if err != nil {
			if d.service, d.request = s, r; commits(r) && d.match(t) == nil {
				d.addParts()
				d.commitLater(err, d.hold.parts)
			}
			return nil, err
		}
		defer leave()
		ctx = entered
	}
	d.service, d.request = s, r
	if err := d.match(t); err != nil {
		return nil, err
	}
	if err := d.decide(ctx); err != nil {
		return nil, err
	}
	response := d.answer()
	d.observe(ctx, start, response.OverallCode)
	return response, nil
}

// check reports why a request can't be decided, whatever its descriptors are.
//
// Entries are checked when their limits are looked for.
func (s *Service) check(r *pb.RateLimitRequest, t *tree) error {
	switch n := len(r.GetDescriptors()); {
	case r.GetDomain() == "":
		return stint.Invalid("domain", "", "the name of a domain")
	case n == 0 || n > MaxDescriptors:
		return stint.Invalid("descriptors", n, fmt.Sprintf("1 to %d descriptors", MaxDescriptors))
	case t == nil:
		return errNotLoaded
	}
	return nil
}

// Malformed is the error of gRPC for a message that is no request, of which it counts and logs the
// cause.
func (s *Service) Malformed(cause error) error {
	return s.failed(fmt.Errorf("%w: %s", stint.ErrInvalid, status.Convert(cause).Message()))
}

// overrideCost is how much more work a limit is that a request brings than one that is configured.
const overrideCost = 3

// costOf is the work that a request is, in operations.
func costOf(r *pb.RateLimitRequest) int64 {
	cost := int64(len(r.Descriptors))
	for _, d := range r.Descriptors {
		if d.Limit != nil {
			cost += overrideCost
		}
	}
	return cost
}

// Envoy decides by its failure_mode_deny what becomes of requests until then.
var errNotLoaded = prefix.Errorf("%w: no configuration of domains is loaded yet", stint.ErrUnavailable)

// failed is an error with a code of gRPC. It counts, and logs what is wrong with a request.
func (s *Service) failed(err error) error {
	code := codes.Unavailable
	text := prefix.Trim(err.Error())
	switch {
	case errors.Is(err, stint.ErrInvalid):
		code = codes.InvalidArgument
		if skipped, ok := s.lines.Admit(); ok {
			s.config.Logger.Warn("a request to the rate limit service is no good", "err", text, "skipped", skipped)
		}
	case errors.Is(err, stint.ErrOverloaded):
		code = codes.ResourceExhausted
		if s.config.Overloaded != nil {
			s.config.Overloaded(err)
		}
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, stint.ErrUnavailable):
		code = codes.DeadlineExceeded
	}
	if code == codes.InvalidArgument || errors.Is(err, errNotLoaded) {
		s.stats.serviceErrors.Add(1)
	} else {
		s.stats.storeErrors.Add(1)
	}
	return status.Error(code, text)
}
