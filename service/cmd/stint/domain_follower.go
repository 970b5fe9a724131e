package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules/file"
	"github.com/stint-go/stint/rules/file/document"
	"github.com/stint-go/stint/service/internal/component"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/logsampler"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
	"github.com/stint-go/stint/service/internal/server/rls/xds"
)

// A domainFollower puts the domains of files, or of a control plane, in force for the rate limit
// service.
//
// Files have faults one by one. What is refused at the start takes no limit from the other files: Envoy admits what has
// no domain. Once a domain is in force, no fault takes it away: a change is refused as a whole if it would.
type domainFollower struct {
	config  config.Envoy
	logger  *slog.Logger
	service *rls.Service // set by whatever follows

	list    []*domains.Domain // in force
	refusal atomic.Pointer[domainRefusal]
	// taken and refusals bound the lines about domains that are in force, and about those that are not.
	taken, refusals *logsampler.Sampler
}

// A domainRefusal is what of the newest domains is not in force.
type domainRefusal struct {
	reason string
	files  []string // nil if everything is refused
	none   bool     // whether there are no domains at all
}

func newDomainFollower(c config.Envoy, logger *slog.Logger) *domainFollower {
	lines := func() *logsampler.Sampler { return logsampler.New(10, time.Minute, nil) } // a control plane may go on and on
	return &domainFollower{config: c, logger: logger, taken: lines(), refusals: lines()}
}

// followDomains follows the domains of Envoy's rate limit service where they are.
func (s *serving) followDomains(ctx context.Context) (end func(), err error) {
	d, rateLimit := cmp.Or(s.dropIn, &dropIn{}), s.server.RateLimit()
	if s.config.Envoy.XDS.Server != "" {
		return s.domains.followPlane(ctx, d.xds, rateLimit)
	}
	from := file.Texts{Path: s.config.Envoy.Config, All: s.dropIn != nil, Hidden: d.hidden}
	return s.domains.followFiles(ctx, from, rateLimit, s.dropIn == nil)
}

// followFiles puts the domains of files in force, and follows the files until the returned function is
// called. With strict one of the first domains has to be good; else there may be none until they are mended.
func (f *domainFollower) followFiles(
	ctx context.Context,
	from file.Texts,
	service *rls.Service,
	strict bool,
) (stop func(), err error) {
	if from.Path == "" {
		return func() {}, nil
	}
	f.service = service
	watch, err := from.Watch(f.logger, f.take)
	if err != nil {
		return nil, misconfigured(err)
	}
	if err := watch.Read(); err != nil {
		if strict {
			return nil, misconfigured(err)
		}
		f.refuse(err)
	}
	return component.Run(ctx, func(ctx context.Context) { watch.Follow(ctx, f.refuse) }), nil
}

// followPlane follows a control plane until the returned function is called.
func (f *domainFollower) followPlane(
	ctx context.Context,
	more xds.Config,
	service *rls.Service,
) (stop func(), err error) {
	f.service = service
	from := f.config.XDS
	more.Server, more.NodeID, more.MergeDomains, more.Logger = from.Server, from.NodeID, f.config.Merge, f.logger
	more.TLS = xds.TLS{
		System: from.TLS.Enabled, CAFile: from.TLS.CAFile, CertFile: from.TLS.CertFile, KeyFile: from.TLS.KeyFile,
		ServerName: from.TLS.ServerName,
	}
	client, err := xds.New(more)
	if err != nil {
		return nil, misconfigured(err)
	}
	take := func(list []*domains.Domain) error {
		err := f.put(list)
		if err == nil {
			f.accept()
		}
		return err
	}
	return component.Run(ctx, func(ctx context.Context) { client.Follow(ctx, take, f.refuse) }), nil
}

// from says where the domains are from.
func (f *domainFollower) from() string { return cmp.Or(f.config.XDS.Server, f.config.Config) }

// take puts the domains of files in force: all, or those of the good files if that takes away none that is in force.
func (f *domainFollower) take(texts []file.Text) error {
	list, warnings, err := readDomains(texts)
	if clashes := domains.Validate(list, f.config.Merge); len(clashes) > 0 {
		const most = 100 // for a log
		list = domains.Sound(list, f.config.Merge)
		err = prefix.Join(err, fmt.Errorf("%w: %s", stint.ErrInvalid, strings.Join(clashes[:min(most, len(clashes))], "\n")))
	}
	if err != nil && (len(list) == 0 || !f.covers(list)) {
		return err
	}
	if failed := f.put(list); failed != nil {
		return failed
	}
	for _, warning := range warnings {
		f.logger.Warn("a part of the domains has no effect", "at", warning)
	}
	if err == nil {
		f.accept()
		return nil
	}
	good := map[string]bool{}
	for _, d := range list {
		good[d.From] = true
	}
	refusal := &domainRefusal{reason: told(err)}
	for _, text := range texts {
		if !good[text.Name] {
			refusal.files = append(refusal.files, text.Name)
		}
	}
	f.refusal.Store(refusal)
	f.service.Refused()
	f.logger.Error("files of domains are refused; the domains of the other files are in force", "from", f.from(),
		"refused", refusal.files, "err", refusal.reason)
	return nil
}

// covers reports whether a list has all domains that are in force; of those that are merged, all parts.
func (f *domainFollower) covers(list []*domains.Domain) bool {
	parts := map[string]int{}
	for _, d := range list {
		parts[d.Name]++
	}
	for _, d := range f.list {
		if parts[d.Name]--; parts[d.Name] < 0 {
			return false
		}
	}
	return true
}

// put puts domains in force.
func (f *domainFollower) put(list []*domains.Domain) error {
	if err := f.service.Swap(list); err != nil {
		return err
	}
	f.list = list
	skipped, ok := f.taken.Admit()
	if !ok {
		return nil
	}
	names, limits, _ := f.service.Loaded()
	f.logger.Info("domains are in force", leftOut(skipped, "from", f.from(), "domains", names, "limits", limits)...)
	for _, warning := range f.service.Warnings(list) {
		f.logger.Warn("a key of the domains counts more than it says", "at", warning)
	}
	return nil
}

// accept notes that the newest domains are in force.
func (f *domainFollower) accept() {
	if f.refusal.Swap(nil) != nil {
		f.logger.Info("the domains are accepted again", "from", f.from())
	}
}

// refuse logs what could not be put in force.
func (f *domainFollower) refuse(err error) {
	f.service.Refused()
	_, _, loaded := f.service.Loaded()
	f.refusal.Store(&domainRefusal{reason: told(err), none: !loaded})
	skipped, ok := f.refusals.Admit()
	if !ok {
		return
	}
	text := "the new domains are refused; the current ones stay in force"
	if !loaded {
		text = "the domains are refused; there are none until they are mended, and requests are answered UNAVAILABLE"
	}
	f.logger.Error(text, leftOut(skipped, "from", f.from(), "err", told(err))...)
}

// leftOut is the attributes of a line, with how many like it were left out before.
func leftOut(skipped int64, attributes ...any) []any {
	if skipped > 0 {
		attributes = append(attributes, "skipped", skipped)
	}
	return attributes
}

// told is an error as operators are told of it.
func told(err error) string { return document.Redact(prefix.Trim(err.Error())) }

// refused says in words what of the newest domains is not in force; "" is nothing.
func (f *domainFollower) refused() string {
	switch refusal := f.refusal.Load(); {
	case refusal == nil:
		return ""
	case refusal.none:
		return "the domains are refused, and there are none; the log says why"
	case refusal.files == nil:
		return "the new domains are refused; the current ones stay in force; the log says why"
	default:
		names := make([]string, len(refusal.files))
		for i, name := range refusal.files {
			names[i] = filepath.Base(name)
		}
		return strings.Join(names, ", ") + " refused; the domains of the other files are in force; the log says why"
	}
}

// details are facts for operators about the domains in force.
func (f *domainFollower) details() map[string]any {
	switch refusal := f.refusal.Load(); {
	case refusal == nil:
		return map[string]any{"state": "current"}
	case refusal.files == nil:
		return map[string]any{"state": "refused", "reason": refusal.reason}
	default:
		return map[string]any{"state": "partial", "refused": refusal.files, "reason": refusal.reason}
	}
}

// readDomains reads the domains of documents, with what in them has no effect. With an error, which has the faults of
// all, the list is the domains of the good ones.
func readDomains(texts []file.Text) (list []*domains.Domain, warnings []string, err error) {
	var faults document.Faults
	for _, text := range texts {
		if text.Err != nil {
			faults.Add(document.Position{Source: text.Name}, "%v", text.Err)
			continue
		}
		domain, noted, err := domains.Parse(text.Name, text.Data)
		for _, fault := range file.Unjoin[document.Faults](err) {
			faults.Join(fault)
		}
		warnings = append(warnings, noted...)
		if err == nil {
			list = append(list, domain)
		}
	}
	return list, slices.Clip(warnings), faults.Err()
}
