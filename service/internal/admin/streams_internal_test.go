package admin

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server/session"
)

// A stream ends when its session does, by signing out anywhere or by its time.
func TestStreamsEndWithTheirSession(t *testing.T) {
	for name, end := range map[string]func(a *Handler, id string){
		"signed out":     func(a *Handler, id string) { a.ended.End(context.Background(), id) },
		"after its time": func(*Handler, string) { <-time.After(session.Lifetime) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := must.Get(session.NewEnded(memstore.New(memstore.Config{})))(t)
				a := &Handler{tokens: newAdminTokens([]config.AdminToken{{Token: "a-token-of-a-reader-01", Name: "ann"}}), origin: http.NewCrossOriginProtection(), ended: ended, stopping: t.Context()}
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/events", nil)
				r.AddCookie(session.New(a.tokens.hashes[0], time.Now(), false))
				id := session.Of(r, a.tokens.hashes, time.Now())[0].ID
				stream, done := a.streaming(r)
				defer done()
				<-time.After(time.Hour)
				synctest.Wait()
				if err := stream.Context().Err(); err != nil {
					t.Fatalf("the stream of a session that goes on: %v", err)
				}
				end(a, id)
				<-time.After(2 * sessionCheck)
				synctest.Wait()
				if err := stream.Context().Err(); !errors.Is(err, context.Canceled) {
					t.Errorf("the stream goes on: %v", err)
				}
			})
		})
	}
}
