package fiberlimit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/httplimit/fiberlimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/storetest"
)

// Failed is told what is given up when fiber serves others by the same memory: by the request as it was.
func TestFailedIsToldLater(t *testing.T) {
	store := storetest.NewFaulty(memstore.New(memstore.Config{}))
	store.Inject(func(call storetest.Call) storetest.Fault {
		if call.Ops[0].Verb == stint.VerbCommit {
			return storetest.Fault{Err: stint.ErrUnavailable}
		}
		return storetest.Fault{}
	})
	limiter := must.Get(stint.New(store, "test", stint.FixedWindow(100, time.Minute)))(t)
	var mu sync.Mutex
	told := map[string]int{}
	limit := must.Get(httplimit.New(httplimit.Config{
		Limiter: limiter, Reserve: &stint.Hold{},
		Failed: func(r *http.Request, err error) {
			mu.Lock()
			defer mu.Unlock()
			c, within := fiberlimit.Context(r)
			if within && c.Path() != r.URL.Path || !errors.Is(err, stint.ErrUnavailable) {
				t.Errorf("Failed is told of %s: %v", r.URL.Path, err)
			}
			told[fmt.Sprint(r.URL.Path, " ", r.Header.Get("X-Id"), " ", within)]++
		},
	}))(t)
	calls := 0
	var app *fiber.App
	app = server(fiber.Config{}, &calls, fiberlimit.Handler(limit), func(c fiber.Ctx) error {
		if c.Path() == "/users/3" { // another one comes while it is held
			status(t, app, "/users/4", "X-Id: 4")
		}
		return c.Next()
	})
	want := map[string]int{}
	for i := range 5 {
		if i < 4 {
			status(t, app, fmt.Sprint("/users/", i), fmt.Sprint("X-Id: ", i))
		}
		want[fmt.Sprintf("/users/%d %d true", i, i)], want[fmt.Sprintf("/users/%d %d false", i, i)] = 1, 1
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := limit.Drain(ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if fmt.Sprint(told) != fmt.Sprint(want) {
		t.Errorf("Failed is told of\n%v, want\n%v", told, want)
	}
}
