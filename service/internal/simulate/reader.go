package simulate

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
)

// Formats are the names of the formats that a [Reader] reads.
func Formats() []string { return []string{"combined", "json", "alb", "csv"} }

// A Reader reads requests from logs. It is not safe for concurrent use; make it with [NewReader].
// Formats differ in what a line looks like; what they have in common is here: lines of a bounded
// length, the count of malformed ones, and addresses that are keyed as the service would. Events
// keep parts of the text that was read, which is never written again, so that reading copies each
// byte once.
type Reader struct {
	input    Input
	parse    parser // nil: the next line will tell
	resolver *clientip.Resolver
	options  ReaderOptions
	event    Event
}

// ReaderOptions say how logs are read. The zero value is for most.
type ReaderOptions struct {
	// Format is one of [Formats]. Default: "", which the first line that is not malformed tells.
	Format string
	// Headers says that rules ask for header fields, of which logs have User-Agent and Referer. Default: false, which is
	// faster.
	Headers bool
	// MaxBytes bounds each input, unpacked; a longer one is an error that wraps stint.ErrInvalid.
	// Default: 0, no bound.
	MaxBytes int64
	// Proceed, if not nil, is asked for each block of an input, of up to 1 MiB, unpacked. Its error ends the reading.
	// Default: nil.
	Proceed func() error
	// IPv6Prefix is by how many bits of their address IPv6 clients are counted. Default: 0, which is
	// 64.
	IPv6Prefix int
}

// An Input is what was read.
type Input struct {
	// Format is one of [Formats].
	Format string `json:"format"`
	Lines  int64  `json:"lines"`
	// Malformed lines are left out. FirstMalformed is the first of them, cut to 200 bytes, with its number and what is
	// wrong.
	Malformed      int64  `json:"malformed"`
	FirstMalformed string `json:"firstMalformed,omitempty"`
}

// A parser makes an event of a line, which never changes.
type parser func(line string, ev *Event) error

// maxLine bounds a line; a longer one is malformed. It is also the size up to which the buffer
// grows: 64 KiB at the start, four times as much whenever a line does not fit.
const maxLine = 1 << 20

// NewReader makes a reader, or reports what is wrong with the options.
func NewReader(options ReaderOptions) (*Reader, error) {
	resolver, err := clientip.New(clientip.Config{IPv6Prefix: options.IPv6Prefix})
	if err != nil {
		return nil, err
	}
	r := &Reader{resolver: resolver, options: options}
	if options.Format != "" {
		err = r.use(options.Format)
	}
	return r, err
}

// Input tells what was read so far.
func (r *Reader) Input() Input { return r.input }

// Read reads one file to its end, which may be compressed by gzip or zstd, and hands its requests
// on. Files that are read one after another are of one format. An error is the input's own, or that
// of add; no line causes one.
func (r *Reader) Read(in io.Reader, add func(*Event) error) error {
	in, done, err := decompress(in)
	if err != nil {
		return err
	}
	defer done()
	if r.options.MaxBytes > 0 {
		in = &bounded{in, r.options.MaxBytes}
	}
	var (
		buffer  = make([]byte, 64<<10)
		held    int  // bytes of a line's begin
		tooLong bool // whether what comes is the rest of a line that is too long
	)
	for {
		if r.options.Proceed != nil {
			if err := r.options.Proceed(); err != nil {
				return err
			}
		}
		n, err := in.Read(buffer[held:])
		if bytes.IndexByte(buffer[held:held+n], '\n') < 0 && err == nil && held+n < len(buffer) {
			held += n // no line ends: nothing is copied, as events keep parts of what is
			continue
		}
		text := string(buffer[:held+n]) // which events keep parts of
		for {
			end := strings.IndexByte(text, '\n')
			if end < 0 {
				break
			}
			if !tooLong {
				if err := r.line(strings.TrimSuffix(text[:end], "\r"), add); err != nil {
					return err
				}
			}
			tooLong, text = false, text[end+1:]
		}
		if tooLong {
			text = ""
		}
		held = copy(buffer, text)
		switch {
		case errors.Is(err, io.EOF):
			if held > 0 {
				return r.line(text, add)
			}
			return nil
		case err != nil:
			return prefix.Errorf("after line %d: %w", r.input.Lines, err)
		case held == maxLine:
			r.input.Lines++
			r.malformed(text, fmt.Errorf("longer than %d bytes", maxLine))
			held, tooLong = 0, true
		case held == len(buffer):
			buffer = append(buffer, make([]byte, min(3*len(buffer), maxLine-len(buffer)))...)
		}
	}
}

// A bounded reader fails when there is more than that many bytes. The bound is on what is unpacked:
// a small file may unpack to very much.
type bounded struct {
	io.Reader
	left int64
}

func (b *bounded) Read(text []byte) (int, error) {
	n, err := b.Reader.Read(text)
	if b.left -= int64(n); b.left < 0 {
		return 0, stint.Invalid("the input", "longer than the bound", "less, unpacked")
	}
	return n, err
}

// maxWindow bounds the memory that zstd may ask for: what its tools write by default has up to 8
// MiB.
const maxWindow = 128 << 20

// decompress looks at how the input begins. It looks at the magic numbers: 1f 8b of gzip (RFC 1952,
// section 2.3.1), and 28 b5 2f fd of zstd (RFC 8878, section 3.1.1). Names of files do not matter,
// so that standard input works, too.
func decompress(in io.Reader) (io.Reader, func(), error) {
	buffered := bufio.NewReader(in) // which does not copy what is read in larger pieces
	begin, _ := buffered.Peek(4)    // shorter ones are not compressed
	switch {
	case bytes.HasPrefix(begin, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(buffered)
		return z, func() {}, prefix.Join(err)
	case bytes.Equal(begin, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(
			buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow),
		)
		if err != nil {
			return nil, nil, prefix.Join(err)
		}
		return z, z.Close, nil
	default:
		return buffered, func() {}, nil
	}
}

// line reads one.
func (r *Reader) line(line string, add func(*Event) error) error {
	r.input.Lines++
	if line == "" {
		return nil
	}
	guessed := r.parse == nil
	if guessed {
		if err := r.use(formatOf(line)); err != nil {
			return err
		}
	}
	r.event = Event{Line: r.input.Lines, Request: rules.Request{Path: "/"}}
	err := r.parse(line, &r.event)
	if h := r.event.Hold; err == nil && h != nil && h.For < 0 {
		err = fmt.Errorf("actual %d without hold", h.Actual)
	}
	switch {
	case err == nil:
		return add(&r.event)
	case errors.Is(err, errNoEvent):
	default:
		r.malformed(line, err)
		if guessed {
			r.parse, r.input.Format = nil, "" // the next line will tell
		}
	}
	return nil
}

// malformed counts a line, and keeps the first for the report: one example tells what is wrong with
// a log in the wrong format.
func (r *Reader) malformed(line string, err error) {
	r.input.Malformed++
	if r.input.Malformed == 1 {
		const most = 200
		r.input.FirstMalformed = fmt.Sprintf("line %d: %v: %q", r.input.Lines, err, line[:min(len(line), most)])
	}
}

// formatOf tells a format by its first line. What looks like nothing else is taken for CSV, whose
// first line has to name a column time; if it does not, the line is malformed and the next one is
// looked at.
func formatOf(line string) string {
	kind, rest, _ := strings.Cut(line, " ")
	switch {
	case strings.HasPrefix(line, "{"):
		return "json"
	case kind != "" && strings.Contains(" http https h2 grpcs ws wss ", " "+kind+" ") && len(rest) > 10 && rest[4] == '-':
		return "alb"
	case strings.Contains(line, " [") && strings.Contains(line, "] \""):
		return "combined"
	default:
		return "csv"
	}
}

// use reads lines of a format from now on.
func (r *Reader) use(format string) error {
	switch format {
	case "combined":
		r.parse = (&combined{reader: r}).parse
	case "json":
		r.parse = r.parseJSON
	case "alb":
		r.parse = r.parseALB
	case "csv":
		r.parse = (&columns{reader: r}).parse
	default:
		return stint.Invalid("format", format, "one of "+strings.Join(Formats(), ", "))
	}
	r.input.Format = format
	return nil
}

// address is the key of a client's address as logs write it, with or without a port; another text
// is itself.
func (r *Reader) address(text string) string {
	addr, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		known, ok := clientip.Parse(text)
		if !ok {
			return text
		}
		return r.resolver.KeyOf(known)
	case addr.Is4():
		return text // which is written in one way only
	default:
		return r.resolver.KeyOf(addr.Unmap().WithZone(""))
	}
}
