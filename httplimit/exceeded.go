package httplimit

import (
	"context"

	"github.com/stint-go/stint/enforce"
)

// exceededKey is the context's key of what marks a request.
type exceededKey struct{}

// Exceeded are the limits that mark the request whose context it is, for handlers behind a [Middleware]: of rules with
// on_exceed mark or mark_at. It is nil of a request that nothing marks. It must not be changed.
func Exceeded(ctx context.Context) []enforce.Exceeded {
	marks, _ := ctx.Value(exceededKey{}).([]enforce.Exceeded)
	return marks
}
