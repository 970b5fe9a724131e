package fiberlimit_test

import (
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/httplimit/fiberlimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
)

// A request counts as what fiber answers it with, an error as its code.
func TestHandlerCounts(t *testing.T) {
	for name, test := range map[string]struct {
		handler fiber.Handler
		want    int
	}{
		"none":     {func(fiber.Ctx) error { return nil }, 200},
		"status":   {func(c fiber.Ctx) error { return c.SendStatus(401) }, 401},
		"error":    {func(fiber.Ctx) error { return fiber.ErrForbidden }, 403},
		"any":      {func(fiber.Ctx) error { return errors.New("no") }, 500},
		"panic":    {func(fiber.Ctx) error { panic("no") }, 500},
		"hijacked": {func(c fiber.Ctx) error { c.RequestCtx().Hijack(func(net.Conn) {}); return nil }, 101},
	} {
		limiter, err := stint.New(memstore.New(memstore.Config{Now: still}), "login", stint.FixedWindow(5, time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		m := must.Get(httplimit.New(httplimit.Config{
			Limiter: limiter, Key: func(*http.Request) (string, error) { return "k", nil },
			Count: func(status int) bool {
				got = status
				return status == 403
			},
		}))(t)
		app := fiber.New()
		app.Use(recover.New(), fiberlimit.Handler(m))
		app.Get("/*", test.handler)
		status(t, app, "/", "A: b")
		d, err := limiter.Peek(t.Context(), "k")
		if want := map[bool]int64{true: 4, false: 5}[test.want == 403]; got != test.want || d.Remaining != want {
			t.Errorf("%s counts as %d, want %d: %v, %v", name, got, test.want, d, err)
		}
	}
}
