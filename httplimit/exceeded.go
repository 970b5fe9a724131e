package httplimit

import (
	"context"
	"net/http"

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

// WriteExceeded sets X-RateLimit-Exceeded to the IDs of the rules that mark a request, each once and in their order; it
// writes nothing if none does.
func WriteExceeded(header http.Header, marks []enforce.Exceeded) {
	var value []byte
	for i := range marks {
		if i > 0 && marks[i].Rule == marks[i-1].Rule {
			continue
		}
		if len(value) > 0 {
			value = append(value, ", "...)
		}
		value = append(value, marks[i].Rule...)
	}
	if len(value) > 0 {
		header["X-Ratelimit-Exceeded"] = []string{string(value)}
	}
}
