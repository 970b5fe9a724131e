package fiberlimit_test

import (
	"errors"
	"net"
	"testing"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/httplimit/fiberlimit"
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
		got := 0
		m := plain(t, httplimit.Config{Count: func(status int) bool {
			got = status
			return status == 403
		}})
		app := fiber.New()
		app.Use(recover.New(), fiberlimit.Handler(m))
		app.Get("/*", test.handler)
		status(t, app, "/", "A: b")
		counted := got
		response, _ := get(t, app, "/") //nolint:bodyclose // get has closed it
		left, want := response.Header.Get("X-RateLimit-Remaining"), map[bool]string{true: "0", false: "1"}[test.want == 403]
		if counted != test.want || left != want {
			t.Errorf("%s counts as %d, want %d; %s are left, want %s", name, counted, test.want, left, want)
		}
	}
}
