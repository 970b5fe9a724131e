package capacity

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/keyhash"
	"github.com/stint-go/stint/service/internal/logsampler"
	"github.com/stint-go/stint/service/internal/server/problem"
)

const (
	// bodyChunk is the memory that a body gets at a time, the first of it before any of the body has
	// come: a client that only claims to send much gets no memory for it. config.HTTP.LeastBodyMemory has four.
	bodyChunk = 8 << 10
	// DefaultBodyMemory is the least that Config.MaxBodyMemory is by default.
	DefaultBodyMemory = 64 << 20
	// adminBodyMemory is what bodies of the admin listener may use besides, all of which are of
	// callers who were authorised: room to read one document of rules of the greatest length at a
	// time, or many short ones.
	adminBodyMemory = 2 * rulefile.MaxBytes
	// bodyAccounts is how many accounts clients share, by a hash of this process's own. Two clients of
	// one account count as one.
	bodyAccounts = 1 << 12
)

// Bodies bound the memory of the bodies that are read, or whose requests are being answered, on
// all connections together.
//
// A fair budget shares the bound among clients by dynamic thresholds (Choudhury and Hahne, 1998): a client
// may hold no more than is free. So one client alone holds at most half of the bound, n clients that hold all they
// may leave 1/(n+1) of it, and a client that holds little is refused only when hardly anything is
// left. It is safe for concurrent use; make it with NewBodies.
type Bodies struct {
	most int64
	fair bool
	// seed is this process's own, so that nobody can choose keys which share an account with another
	// client's.
	seed keyhash.Seed
	// held is the memory of all bodies, in bytes: at most most, plus charges that are about to be
	// taken back.
	held atomic.Int64
	// clients has what each account holds, of which held is the sum.
	clients [bodyAccounts]atomic.Int64
	chunks  sync.Pool // of *[bodyChunk]byte

	refused prometheus.Counter
	lines   *logsampler.Sampler
	logger  *slog.Logger
}

// newBodyBudget makes a budget of so many bytes; refused counts what it refuses.
func newBodyBudget(most int64, fair bool, refused prometheus.Counter, logger *slog.Logger) *Bodies {
	return &Bodies{
		most: most, fair: fair, seed: keyhash.MakeSeed(), chunks: sync.Pool{New: func() any { return new([bodyChunk]byte) }},
		refused: refused, lines: logsampler.New(1, time.Minute, nil), logger: logger,
	}
}

// The listeners, as the metrics name them.
const publicListener, adminListener = "http", "admin"

// NewBodies makes the budgets of both listeners, of which the public one has so many bytes, with their metrics.
func NewBodies(most int64, logger *slog.Logger, registry prometheus.Registerer) (public, admin *Bodies, err error) {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "rate_limiter_bodies_refused_total",
		Help: "Requests answered 503 because request bodies, of all clients or of one, used all the memory that they may.",
	}, []string{"service"})
	public = newBodyBudget(most, true, refused.WithLabelValues(publicListener), logger)
	admin = newBodyBudget(adminBodyMemory, false, refused.WithLabelValues(adminListener), logger)
	err = registry.Register(refused)
	for service, b := range map[string]*Bodies{publicListener: public, adminListener: admin} {
		err = errors.Join(err, registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "rate_limiter_body_bytes", Help: "Memory of the bodies of requests under way.",
			ConstLabels: prometheus.Labels{"service": service},
		}, func() float64 { return float64(b.held.Load()) })))
	}
	return public, admin, err
}

// A Body is the text of a request's body with the memory that is charged for it, until it is
// released.
type Body struct {
	Text string

	budget  *Bodies
	account *atomic.Int64
	charged int64
}

// Release takes the charge back. It may be called more than once, and on the zero value.
func (b *Body) Release() {
	if b.charged != 0 {
		b.budget.add(b.account, -b.charged)
		b.charged = 0
	}
}

// charge charges n bytes more, or reports that they can't be had. The condition of a fair budget is
// own <= most - held, both with the charge: a client may hold no more than is free afterwards.
// Charges are added first and taken back, so that two goroutines can't both take the last of it.
func (b *Body) charge(n int64) bool {
	held, own := b.budget.add(b.account, n)
	if held <= b.budget.most && (!b.budget.fair || own <= b.budget.most-held) {
		b.charged += n
		return true
	}
	b.budget.add(b.account, -n)
	return false
}

// add changes both sums, and returns what they are then.
func (b *Bodies) add(account *atomic.Int64, n int64) (held, own int64) {
	return b.held.Add(n), account.Add(n)
}

func (b *Bodies) accountOf(client string) *atomic.Int64 {
	return &b.clients[keyhash.String(b.seed, client)%bodyAccounts]
}

// errBodyMemory says that a body's memory can't be had.
var errBodyMemory = errors.New("stint: no memory for a body")

// read reads a body to its end and charges it to a client, with the memory that the request uses
// besides. What it returns is released when the request is answered. The error is errBodyMemory, or
// from's. Chunks come from a pool and are charged as they are needed; in the end the text is copied
// out of them, with its own length charged, and the chunks go back. So the memory of a body is at
// most twice its length for a moment.
func (b *Bodies) read(client string, besides int64, from io.Reader) (Body, error) {
	read := Body{budget: b, account: b.accountOf(client)}
	if !read.charge(besides) {
		return Body{}, b.refuse(&read)
	}
	var few [8]*[bodyChunk]byte
	chunks, size := few[:0], 0
	defer func() {
		for _, chunk := range chunks {
			b.chunks.Put(chunk)
		}
	}()
	for {
		if size == len(chunks)*bodyChunk {
			if !read.charge(bodyChunk) {
				return Body{}, b.refuse(&read)
			}
			chunk, _ := b.chunks.Get().(*[bodyChunk]byte)
			chunks = append(chunks, chunk)
		}
		n, err := from.Read(chunks[len(chunks)-1][size%bodyChunk:])
		size += n
		if err == io.EOF {
			break
		}
		if err != nil {
			read.Release()
			return Body{}, err
		}
	}
	if !read.charge(int64(size)) {
		return Body{}, b.refuse(&read)
	}
	var text strings.Builder
	text.Grow(size)
	for i, chunk := range chunks {
		text.Write(chunk[:min(size-i*bodyChunk, bodyChunk)])
	}
	read.Text = text.String()
	chunked := int64(len(chunks) * bodyChunk)
	b.add(read.account, -chunked) // they go back
	read.charged -= chunked
	return read, nil
}

// refuse counts a body that can't be had, and takes back what was charged for it.
func (b *Bodies) refuse(read *Body) error {
	read.Release()
	b.refused.Inc()
	b.lines.Warn(b.logger, "requests are answered 503: bodies use all the memory that they may (http.max_body_memory)",
		"bound", b.most)
	return errBodyMemory
}

// headOf is about how much memory a request's head uses on a connection of HTTP/2, which has many
// at once; of HTTP/1 each connection has one, and 0 is returned. net/http bounds a head by
// MaxHeaderBytes, but not how many streams of one connection have one at once.
func headOf(r *http.Request) (bytes int64) {
	if r.ProtoMajor < 2 {
		return 0
	}
	const field = 128 // what a field uses besides its text
	bytes = int64(len(r.RequestURI))
	for name, lines := range r.Header {
		for _, line := range lines {
			bytes += int64(len(name)+len(line)) + field
		}
	}
	return bytes
}

// Read reads a client's body of at most so many bytes, unless its length says already that it has more. begin, unless
// it is nil, waits for its turn. What it returns is released when the request is answered.
func (b *Bodies) Read(
	w http.ResponseWriter, r *http.Request, client string, most int64, begin func() (done func(), err error),
) (Body, error) {
	if r.ContentLength > most {
		w.Header().Set("Connection", "close") // rather than reading it to its end
		return Body{}, problem.TooLarge(most)
	}
	if begin != nil {
		done, err := begin()
		if err != nil {
			w.Header().Set("Connection", "close") // as above
			return Body{}, err
		}
		defer done()
	}
	var head int64
	if b.fair {
		head = headOf(r)
	}
	text, err := b.read(client, head, problem.BoundedBody(w, r, most))
	switch {
	case err == nil:
		return text, nil
	case errors.Is(err, errBodyMemory):
		return Body{}, problem.ReducedCapacity(
			"request bodies, of all clients or of this one, use all the memory that they may; nothing was done",
		)
	case errors.As(err, new(*http.MaxBytesError)):
		return Body{}, problem.TooLarge(most)
	default:
		return Body{}, problem.EndedEarly()
	}
}

// Text is Read of a body that is charged to nobody in particular. release is called when the request is answered.
func (b *Bodies) Text(w http.ResponseWriter, r *http.Request, most int64) (text string, release func(), err error) {
	read, err := b.Read(w, r, "", most, nil)
	return read.Text, read.Release, err
}

// HeapBytes are those of the heap's objects, of garbage too. It is read without stopping the world.
func HeapBytes() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
