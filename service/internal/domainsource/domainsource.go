// Package domainsource follows the domains of Envoy's rate limit service where they are: in files, or at a control
// plane.
package domainsource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/service/internal/component"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/follow"
	"github.com/stint-go/stint/service/internal/logsampler"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
	"github.com/stint-go/stint/service/internal/server/rls/xds"
)

// A Follower puts the domains of files, or of a control plane, in force for the rate limit
// service.
//
// Files have faults one by one. What is refused at the start takes no limit from the other files: Envoy admits what has
// no domain. Once a domain is in force, no fault takes it away: a change is refused as a whole if it would.
type Follower struct {
	// Follower keeps the last good domains.
	*follow.Follower[[]*domains.Domain]

	config  config.Envoy
	logger  *slog.Logger
	service *rls.Service // set by what follows
	// taken bounds the lines about domains that are in force.
	taken *logsampler.Sampler
}

// refusedFiles are those of which nothing is in force, while the domains of the others are.
type refusedFiles struct {
	files []string
	error
}

// New makes a follower that has nothing yet. Afterwards either FollowFiles or FollowPlane is called, once. Its methods
// are safe for concurrent use.
func New(c config.Envoy, logger *slog.Logger) *Follower {
	f := &Follower{config: c, logger: logger, taken: logsampler.New(10, time.Minute, nil)}
	f.Follower = follow.New(follow.Options[[]*domains.Domain]{
		Attributes: []any{"from", cmp.Or(c.XDS.Server, c.Config)}, Logger: logger, Level: slog.LevelError,
		Put:   f.put,
		Count: func() { f.service.Refused() },
		Text: func(reason error, inForce bool) (string, []any) {
			partly, is := errors.AsType[*refusedFiles](reason)
			switch {
			case is:
				return "files of domains are refused; the domains of the other files are in force", []any{"refused", partly.files}
			case inForce:
				return "the new domains are refused; the current ones stay in force", nil
			default:
				return "the domains are refused; there are none until they are mended, and requests are answered UNAVAILABLE", nil
			}
		},
		Again: func(error, bool) string { return "the domains are accepted again" },
	})
	return f
}

// FollowFiles puts the domains of files in force, and follows the files until the returned function is
// called. With strict one of the first domains has to be good; else there may be none until they are mended.
func (f *Follower) FollowFiles(
	ctx context.Context,
	from rulefile.Texts,
	service *rls.Service,
	strict bool,
) (stop func(), err error) {
	if from.Path == "" {
		return func() {}, nil
	}
	f.service = service
	watch, err := from.Watch(f.logger, f.take)
	if err != nil {
		return nil, err
	}
	if err := watch.Read(); err != nil {
		if strict {
			return nil, err
		}
		f.Refuse(err)
	}
	return component.Run(ctx, func(ctx context.Context) { watch.Follow(ctx, f.Refuse) }), nil
}

// FollowPlane follows a control plane until the returned function is called. more is what the configuration does not
// say.
func (f *Follower) FollowPlane(
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
		return nil, err
	}
	take := func(list []*domains.Domain) error { return f.Take(list, nil) }
	return component.Run(ctx, func(ctx context.Context) { client.Follow(ctx, take, f.Refuse) }), nil
}

// take puts the domains of files in force: all, or those of the good files if that takes away none that is in force.
func (f *Follower) take(texts []rulefile.Text) error {
	list, warnings, err := Read(texts)
	if clashes := domains.Validate(list, f.config.Merge); len(clashes) > 0 {
		const most = 100 // for a log
		list = domains.Sound(list, f.config.Merge)
		err = prefix.Join(err, fmt.Errorf("%w: %s", stint.ErrInvalid, strings.Join(clashes[:min(most, len(clashes))], "\n")))
	}
	if err != nil && (len(list) == 0 || !f.covers(list)) {
		return err
	}
	var partly error
	if err != nil {
		good := map[string]bool{}
		for _, d := range list {
			good[d.From] = true
		}
		refused := &refusedFiles{error: err}
		for _, text := range texts {
			if !good[text.Name] {
				refused.files = append(refused.files, text.Name)
			}
		}
		partly = refused
	}
	if err := f.Take(list, partly); err != nil {
		return err
	}
	for _, warning := range warnings {
		f.logger.Warn("a part of the domains has no effect", "at", warning)
	}
	return nil
}

// covers reports whether a list has all domains that are in force; of those that are merged, all parts.
func (f *Follower) covers(list []*domains.Domain) bool {
	parts := map[string]int{}
	for _, d := range list {
		parts[d.Name]++
	}
	for _, d := range f.Value() {
		if parts[d.Name]--; parts[d.Name] < 0 {
			return false
		}
	}
	return true
}

// put puts domains in force.
func (f *Follower) put(list []*domains.Domain) error {
	if err := f.service.Swap(list); err != nil {
		return err
	}
	names, limits, _ := f.service.Loaded()
	if !f.taken.Log(f.logger, slog.LevelInfo, "domains are in force",
		"from", cmp.Or(f.config.XDS.Server, f.config.Config), "domains", names, "limits", limits) {
		return nil
	}
	for _, warning := range f.service.Warnings(list) {
		f.logger.Warn("a key of the domains counts more than it says", "at", warning)
	}
	return nil
}

// Refused says in words what of the newest domains is not in force; "" is nothing.
func (f *Follower) Refused() string {
	reason := f.Reason()
	partly, is := errors.AsType[*refusedFiles](reason)
	switch {
	case reason == nil:
		return ""
	case is:
		names := make([]string, len(partly.files))
		for i, name := range partly.files {
			names[i] = filepath.Base(name)
		}
		return strings.Join(names, ", ") + " refused; the domains of the other files are in force; the log says why"
	case f.IsRead():
		return "the new domains are refused; the current ones stay in force; the log says why"
	default:
		return "the domains are refused, and there are none; the log says why"
	}
}

// Details are facts for operators about the domains in force.
func (f *Follower) Details() map[string]any {
	reason := f.Reason()
	if reason == nil {
		return map[string]any{"state": "current"}
	}
	details := map[string]any{"state": "refused", "reason": follow.Told(reason)}
	if partly, is := errors.AsType[*refusedFiles](reason); is {
		details["state"], details["refused"] = "partial", partly.files
	}
	return details
}

// Read reads the domains of documents, with what in them has no effect. With an error, which has the faults of
// all, the list is the domains of the good ones.
func Read(texts []rulefile.Text) (list []*domains.Domain, warnings []string, err error) {
	var faults document.Faults
	for _, text := range texts {
		if text.Err != nil {
			faults.Add(document.Position{Source: text.Name}, "%v", text.Err)
			continue
		}
		domain, noted, err := domains.Parse(text.Name, text.Data)
		for _, fault := range rulefile.Unjoin[document.Faults](err) {
			faults.Join(fault)
		}
		warnings = append(warnings, noted...)
		if err == nil {
			list = append(list, domain)
		}
	}
	return list, slices.Clip(warnings), faults.Err()
}
