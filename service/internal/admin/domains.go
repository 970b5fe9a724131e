package admin

import (
	"net/http"

	"github.com/stint-go/stint/service/internal/listen"
	"github.com/stint-go/stint/service/internal/server/problem"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rulesapi"
)

// The paths of the admin API about the rate limit service.
const (
	pathDomains       = "/api/v1/domains"
	pathExplainDomain = "/api/v1/domains/explain"
)

// A DomainList answers for the domains in force.
type DomainList struct {
	Domains []rls.Domain `json:"domains"`
}

// listDomains tells which domains are in force.
func (a *Handler) listDomains(w http.ResponseWriter, r *http.Request, _ rulesapi.Caller) error {
	list := DomainList{Domains: []rls.Domain{}}
	if a.rateLimit != nil {
		list.Domains = a.rateLimit.Domains()
	}
	return problem.Answer(w, r, http.StatusOK, list)
}

// explainDomain tells what a request of the rate limit service would be answered, and takes
// nothing.
func (a *Handler) explainDomain(w http.ResponseWriter, r *http.Request, _ rulesapi.Caller) error {
	if a.rateLimit == nil {
		return problem.New(http.StatusNotFound, "there are no domains: the service has no grpc_listen")
	}
	text, release, err := a.readBody(w, r, listen.MessageBytes)
	if err != nil {
		return err
	}
	defer release()
	request, err := rls.ReadJSON([]byte(text))
	if err != nil {
		return err
	}
	explained, err := a.rateLimit.Explain(r.Context(), request)
	if err != nil {
		return err
	}
	return problem.Answer(w, r, http.StatusOK, explained)
}
