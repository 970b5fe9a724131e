package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/server/dashboard"
	"github.com/stint-go/stint/server/problem"
	"github.com/stint-go/stint/server/rulesapi"
	"github.com/stint-go/stint/server/session"
)

// pathSession is where the dashboard signs in and out.
const pathSession = "/session"

// maxSignInBytes bounds the body of a sign-in.
const maxSignInBytes = 4 << 10

// A signIn keeps the holders of tokens signed in to the dashboard.
type signIn struct {
	secrets []session.Secret // of the tokens, in their order
	now     func() time.Time
	origin  *http.CrossOriginProtection
	pages   *dashboard.Handler
}

func newSignIn(tokens adminTokens) (*signIn, error) {
	pages, err := dashboard.New()
	if err != nil {
		return nil, err
	}
	s := &signIn{now: time.Now, origin: http.NewCrossOriginProtection(), pages: pages}
	for _, hash := range tokens.hashes {
		s.secrets = append(s.secrets, session.Secret(hash))
	}
	return s, nil
}

// find returns the place of the token by whose session a request was sent, and -1 if it was not by one. A page of
// another origin that makes a browser send the cookie changes nothing by it.
func (s *signIn) find(r *http.Request) int {
	if s == nil || len(r.Header["Authorization"]) > 0 || s.origin.Check(r) != nil {
		return -1
	}
	return session.Find(r, s.secrets, s.now())
}

// sessionAnswer says who is signed in.
type sessionAnswer struct {
	Required bool   `json:"required"` // whether a token is needed
	Name     string `json:"name,omitempty"`
	Writes   bool   `json:"writes"`
}

// serveSession answers who is signed in (GET), signs in by a token (POST) and signs out (DELETE). The caller is who sent the request.
func (a *admin) serveSession(w http.ResponseWriter, r *http.Request, caller rulesapi.Caller) error {
	if err := a.signIn.origin.Check(r); err != nil {
		return forbidden("the request comes from a page of another origin; allowed: the dashboard itself")
	}
	// A request to another name than this machine's may not even sign in: its sender reads the answer.
	var known *problem.Error
	if errors.As(caller.Fault, &known) && known.Status != http.StatusUnauthorized {
		return caller.Fault
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		if caller.Fault != nil {
			return answerSession(w, r, sessionAnswer{Required: true})
		}
		return answerSession(w, r, sessionAnswer{Required: len(a.signIn.secrets) > 0, Name: caller.Name, Writes: caller.Writes})
	case http.MethodPost:
		place, err := a.readSignIn(w, r)
		if err != nil {
			return err
		}
		holder := a.tokens.tokens[place]
		http.SetCookie(w, session.New(a.signIn.secrets[place], a.signIn.now(), r.TLS != nil))
		return answerSession(w, r, sessionAnswer{Required: true, Name: holder.Name, Writes: holder.Role >= RoleWrite})
	case http.MethodDelete:
		http.SetCookie(w, session.End(r.TLS != nil))
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNoContent)
		return nil
	default:
		return problem.CheckMethod(r, "GET", "HEAD", "POST", "DELETE")
	}
}

// readSignIn returns the place of the token in the body.
func (a *admin) readSignIn(w http.ResponseWriter, r *http.Request) (place int, err error) {
	var body struct {
		Token string `json:"token"`
	}
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxSignInBytes))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&body); err != nil {
		return 0, stint.Invalid("the body", "no such JSON", `{"token": TOKEN}`)
	}
	if place = a.tokens.hashes.place(body.Token); place < 0 {
		return 0, problem.New(http.StatusUnauthorized, "the token is not known; allowed: one of admin.tokens_file")
	}
	return place, nil
}

func answerSession(w http.ResponseWriter, r *http.Request, answer sessionAnswer) error {
	return problem.Answer(w, r, http.StatusOK, answer)
}
