package rest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/service/internal/capacity"
	"github.com/stint-go/stint/service/internal/listen"
	"github.com/stint-go/stint/service/internal/server/problem"
	"github.com/stint-go/stint/service/internal/server/resp"
)

// RESP is what the Redis protocol has of the service. Package resp knows the protocol and
// nothing of the service: what it decides, who may ask, and what is counted come by these
// functions.
func (s *Service) RESP(loopback bool, state func(net.Conn, http.ConnState)) resp.Config {
	var take func(context.Context, *stint.Policy, string, int64) (stint.Decision, error)
	if s.config.InProcess {
		take = s.config.Store.Take
	}
	return resp.Config{
		Take:      take,
		KeepKeys:  len(s.config.Observers) > 0,
		DecideAll: s.decideAll,
		Evaluate:  s.evaluateCommand,
		Enter: func(ctx context.Context, address string, cost int64) (context.Context, func(), error) {
			ctx, work, err := s.enterFor(ctx, cost, listen.RESP, func() string { return s.clients.Key(address, nil) })
			return ctx, work.Leave, err
		},
		Observe: s.observe,
		Target: func(policy string) (*resp.Target, error) {
			t, err := s.targets.Load().policy(policy)
			if err != nil {
				return nil, err
			}
			return &t.Target, nil
		},
		Undecided: func(by stint.Algorithm, err error) { _ = s.refused(by, err) },
		CheckKey:  checkKey,
		MayAsk:    func(token string) error { return s.authority.mayManageBy(token, loopback) },
		MayName: func(token string) error {
			return s.authority.mayNameKeys(s.authority.mayManageBy(token, loopback))
		},
		Tokens: len(s.authority.tokens) > 0,
		Refused: func(address string, err error) (int, string) {
			f := problem.Of(err)
			if errors.Is(err, stint.ErrOverloaded) {
				s.noteOverload(listen.RESP, err)
			}
			if outcome := outcomeOf(f); outcome != "" {
				s.noteRefused(outcome, listen.RESP, address, s.clients.Key(address, nil), "auth", f.Detail, "")
			}
			return f.Status, f.Detail
		},
		Handshake:   s.noteHandshake,
		Raw:         listen.Raw,
		State:       state,
		BodyTimeout: s.config.HTTP.BodyTimeout,
		Draining:    s.parts.Draining,
		Memory:      capacity.HeapBytes,
		Version:     s.config.Build.Version,
		Logger:      s.logger,
	}
}

// noteHandshake logs that a client has no TLS, no certificate that is needed, or does not trust the
// service's: it hears less of that than one of HTTP. One that is gone, or was too slow, is none of
// these. Lines about it are sampled, as anyone who can connect causes them.
func (s *Service) noteHandshake(address string, err error) {
	for _, gone := range []error{io.EOF, net.ErrClosed, os.ErrDeadlineExceeded, context.Canceled, syscall.ECONNRESET} {
		if errors.Is(err, gone) {
			return
		}
	}
	s.events.handshakeLines.Warn(s.logger, "a TLS handshake on the listener of the Redis protocol failed", "peer",
		address, "err", err)
}

// evaluateCommand decides by rules about a request that a command describes. It takes the same way
// as an evaluation over HTTP: the work waits for its turn, the description is read, the set is
// allowed, and the rules decide.
func (s *Service) evaluateCommand(ctx context.Context, q *resp.Question) (r api.EvaluateResponse, err error) {
	size := 0
	for _, detail := range q.Details {
		size += len(detail)
	}
	e := newEvaluation()
	ctx, e.work, err = s.enterFor(ctx, capacity.CostOf(1, size), listen.RESP,
		func() string { return s.clients.Key(q.Address, nil) })
	if err != nil {
		return r, err
	}
	defer e.work.Leave()
	if err = e.describe(q, s); err != nil {
		return r, err
	}
	if err = s.authority.mayNameSet(&e.request); err != nil {
		return r, err
	}
	if err = s.enforce(ctx, "", e); err != nil {
		return r, err
	}
	e.answer()
	e.response.Vias = e.vias()
	return e.response, nil
}

// describe reads what a command says about a request. Names are those of the members over HTTP,
// with headers.NAME and attributes.NAME in place of nested objects. Each may be said once.
func (e *evaluation) describe(q *resp.Question, s *Service) (err error) {
	e.request.Header, e.request.Attributes = e.header, e.attributes
	e.request.Method = q.Method
	err = e.set(pathMember, q.Path, s.clients)
	said := map[string]bool{}
	for i := 0; i+1 < len(q.Details) && err == nil; i += 2 {
		name, value := string(q.Details[i]), string(q.Details[i+1])
		field, isHeader := strings.CutPrefix(name, "headers.")
		attribute, isAttribute := strings.CutPrefix(name, "attributes.")
		if said[name] {
			return errRepeated(name)
		}
		said[name] = true
		switch m := memberNamed(name); {
		case isHeader:
			err = e.addHeader(field, value)
		case isAttribute:
			err = e.addAttribute(attribute, value)
		case m&(hostMember|ipMember|setMember) != 0:
			err = e.set(m, value, s.clients)
		case m == waitMember && (value == "true" || value == "false"):
			e.now = value == "false"
		case m == waitMember:
			err = stint.Invalid(name, problem.Short(value), "true or false")
		default:
			err = stint.Invalid("name", problem.Short(name), "host, ip, set, wait, headers.NAME or attributes.NAME")
		}
	}
	e.identify()
	return err
}
