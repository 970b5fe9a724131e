package main

import (
	"context"
	"log/slog"
	"slices"

	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules/file"
	"github.com/stint-go/stint/rules/file/document"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
	"github.com/stint-go/stint/service/internal/server/rls/xds"
)

// A domainFollower puts the domains of files, or of a control plane, in force for the rate limit
// service.
type domainFollower struct {
	path    string
	service *rls.Service
	logger  *slog.Logger
}

// followDomains puts the domains of files in force, and follows the files until the returned function is
// called. With strict the first domains have to be good; else those with faults are refused, and there
// are none until they are mended.
func followDomains(
	ctx context.Context,
	from file.Texts,
	service *rls.Service,
	logger *slog.Logger,
	strict bool,
) (stop func(), err error) {
	if from.Path == "" {
		return func() {}, nil
	}
	f := &domainFollower{path: from.Path, service: service, logger: logger}
	watch, err := from.Watch(logger, f.take)
	if err != nil {
		return nil, misconfigured(err)
	}
	if err := watch.Read(); err != nil {
		if strict {
			return nil, misconfigured(err)
		}
		f.refuse(err)
	}
	return background(ctx, func(ctx context.Context) { watch.Follow(ctx, f.refuse) }), nil
}

// followPlane follows a control plane until the returned function is called.
func followPlane(
	ctx context.Context,
	loaded config.Envoy,
	more xds.Config,
	service *rls.Service,
	logger *slog.Logger,
) (stop func(), err error) {
	f := &domainFollower{path: loaded.XDS.Server, service: service, logger: logger}
	more.Server, more.NodeID, more.MergeDomains, more.Logger = loaded.XDS.Server, loaded.XDS.NodeID, loaded.Merge, logger
	t := loaded.XDS.TLS
	more.TLS = xds.TLS{
		System: t.Enabled, CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile, ServerName: t.ServerName,
	}
	client, err := xds.New(more)
	if err != nil {
		return nil, misconfigured(err)
	}
	return background(ctx, func(ctx context.Context) { client.Follow(ctx, f.put, f.refuse) }), nil
}

// take puts the domains of files in force.
func (f *domainFollower) take(texts []file.Text) error {
	list, warnings, err := readDomains(texts)
	if err == nil {
		err = f.put(list)
	}
	if err != nil {
		return err
	}
	for _, warning := range warnings {
		f.logger.Warn("a part of the domains has no effect", "at", warning)
	}
	return nil
}

// put puts domains in force.
func (f *domainFollower) put(list []*domains.Domain) error {
	if err := f.service.Swap(list); err != nil {
		return err
	}
	names, limits, _ := f.service.Loaded()
	f.logger.Info("domains are in force", "from", f.path, "domains", names, "limits", limits)
	for _, warning := range f.service.Warnings(list) {
		f.logger.Warn("a key of the domains counts more than it says", "at", warning)
	}
	return nil
}

// refuse logs what could not be put in force.
func (f *domainFollower) refuse(err error) {
	f.service.Refused()
	text := "the new domains are refused; the current ones stay in force"
	if _, _, loaded := f.service.Loaded(); !loaded {
		text = "the domains are refused; there are none until they are mended, and requests are answered UNAVAILABLE"
	}
	f.logger.Error(text, "from", f.path, "err", document.Redact(prefix.Trim(err.Error())))
}

// readDomains reads the domains of documents, with what in them has no effect.
func readDomains(texts []file.Text) (list []*domains.Domain, warnings []string, err error) {
	var faults document.Faults
	for _, text := range texts {
		domain, noted, err := domains.Parse(text.Name, text.Data)
		for _, fault := range file.Unjoin[document.Faults](err) {
			faults.Join(fault)
		}
		warnings = append(warnings, noted...)
		list = append(list, domain)
	}
	return list, slices.Clip(warnings), faults.Err()
}

// rateLimitConfig is the configuration's part of the rate limit service.
func rateLimitConfig(c config.Envoy) rls.Config {
	return rls.Config{
		Accounting: domains.Accounting(c.Accounting), MergeDomains: c.Merge, Shadow: c.Shadow, Quota: c.Quota,
		KeepDenied: c.KeepDenied, Metadata: c.Metadata, NearRatio: float32(c.NearRatio) / 100,
		Headers: rls.Headers(c.Headers),
	}
}
