package simulate

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/prefix"
)

// A Reader reads requests from logs. It is not safe for concurrent use; make it with [NewReader].
// Formats differ in what a line looks like; what they have in common is here: lines of a bounded
// length, the count of malformed ones, and addresses that are keyed as the service would. Events
// keep parts of the text that was read, which is never written again, so that reading copies each
// byte once.
type Reader struct {
	input    Input
	parse    parser // nil: the first lines will tell
	resolver *clientip.Resolver
	options  ReaderOptions
	// proxies are the header fields in which proxies write the hops before them
	proxies []string
	// candidates are the formats that the log may have, with the layouts of their own times
	candidates []layout
	known      fields
	layouts    string
	// begins says that the next line is a file's first
	begins bool
	sample []sampled
	bytes  int // of the sample
	event  Event
	line   lineRead
	kept   map[string]*string // in line, by field
	about  *about
	times  [60]struct { // as of time
		text string
		at   stint.Instant
	}
	seen [len(looked)]bool // in some request
}

// ReaderOptions say how logs are read. The zero value is for most.
type ReaderOptions struct {
	// Format is one of [Formats], or describes one: nginx: and the text of a log_format, apache: and that of a LogFormat,
	// json:, csv:, tsv: or w3c: and names, such as client=ClientHost,time=StartUTC. Default: "", which is the one that
	// reads most of the first 1,000 lines, at least half of them.
	Format string
	// Headers says that rules ask for header fields, of which logs have User-Agent and Referer. Default: false, which is
	// faster.
	Headers bool
	// Address says that each request needs an address, or a key. Default: false, a user, an API key or an attribute is
	// enough.
	Address bool
	// MaxBytes bounds each input, unpacked; a longer one is an error that wraps stint.ErrInvalid.
	// Default: 0, no bound.
	MaxBytes int64
	// Proceed, if not nil, is asked for each block of an input, of up to 1 MiB, unpacked. Its error ends the reading.
	// Default: nil.
	Proceed func() error
	// Unread, if not nil, is told each line that is left out, with what is wrong with it. Its error ends the reading.
	// Default: nil.
	Unread func(line int64, text string, fault error) error
	// ClientIP says which hops of a list are believed, and by how many bits IPv6 clients are counted. Default: no hop
	// but the last, and 64.
	ClientIP clientip.Config
}

// An Input is what was read.
type Input struct {
	// Format is one of [Formats], or describes one; Wrapped is what stood around each line, such as "cri".
	Format  string `json:"format"`
	Wrapped string `json:"wrapped,omitempty"`
	// Requests are of so many Lines.
	Requests int64 `json:"requests"`
	Lines    int64 `json:"lines"`
	// Malformed lines are left out. FirstMalformed is the first of them, cut to 200 bytes, with its number and what is
	// wrong.
	Malformed      int64  `json:"malformed"`
	FirstMalformed string `json:"firstMalformed,omitempty"`
	// Garbled requests count, and have neither a method nor a path that can be read. FirstGarbled is the first of them.
	Garbled      int64  `json:"garbled,omitempty"`
	FirstGarbled string `json:"firstGarbled,omitempty"`
	// Forwarded requests name hops before the client, of which none is believed.
	Forwarded int64 `json:"forwarded,omitempty"`
	// Clients are up to three, as an example.
	Clients []string `json:"clients,omitempty"`
	// Lacks is what rules may look at, and no request has: path, host, method, user, api_key or headers.
	Lacks []string `json:"lacks,omitempty"`
}

// looked are what rules look at.
var looked = [...]string{"path", "host", "method", "user", "api_key", "headers"}

// A parser makes an event of a line, which never changes.
type parser func(line string, ev *Event) error

// A sampled line is one of those that tell the format.
type sampled struct {
	number int64
	text   string
}

// maxLine bounds a line; a longer one is malformed. It is also the size up to which the buffer
// grows: 64 KiB at the start, four times as much whenever a line does not fit.
const maxLine = 1 << 20

// The lines that tell the format are so many at most, and so many bytes.
const (
	maxSample      = 1000
	maxSampleBytes = 4 << 20
)

// NewReader makes a reader, or reports what is wrong with the options.
func NewReader(options ReaderOptions) (*Reader, error) {
	resolver, err := clientip.New(options.ClientIP)
	if err != nil {
		return nil, err
	}
	r := &Reader{resolver: resolver, options: options, proxies: options.ClientIP.Headers}
	if len(r.proxies) == 0 {
		r.proxies = clientip.DefaultHeaders()
	}
	r.known, r.kept = r.fieldsOf(nil, false), r.keep()
	r.candidates, err = r.layoutsOf(options.Format)
	return r, err
}

// Done tells what was read. Without a request it is an error.
func (r *Reader) Done() (Input, error) {
	if r.input.Requests == 0 && r.input.Malformed > 0 {
		return r.input, prefix.Errorf("no line is a request. The first: %s", r.input.FirstMalformed)
	}
	if r.input.Requests == 0 { // but empty ones
		return r.input, prefix.Errorf("there are no lines; expected a log, or lines of CSV or JSON")
	}
	for i, name := range looked {
		if !r.seen[i] {
			r.input.Lacks = append(r.input.Lacks, name)
		}
	}
	return r.input, nil
}

// Read reads one file to its end, which may be compressed by gzip, zstd or bzip2, and hands its requests
// on. Files that are read one after another are of one format. An error is the input's own, that no
// known format reads half of its first lines, or that of add.
func (r *Reader) Read(in io.Reader, add func(*Event) error) error {
	r.begins = true
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
				if err := r.take(strings.TrimSuffix(text[:end], "\r"), add); err != nil {
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
				if err := r.take(text, add); err != nil {
					return err
				}
			}
			return r.begin(add)
		case err != nil:
			return prefix.Errorf("after line %d: %w", r.input.Lines, err)
		case held == maxLine:
			r.input.Lines++
			if err := r.malformed(r.input.Lines, text, faultf("longer than %d bytes", maxLine)); err != nil {
				return err
			}
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

// packed are how inputs begin that are not read, each with its name and what unpacks it.
var packed = [][3]string{
	{"\xfd7zXZ\x00", "xz", "xz -dc FILE"},
	{"\x04\x22\x4d\x18", "lz4", "lz4 -dc FILE"},
	{"PK\x03\x04", "zip", "unzip -p FILE"},
}

// decompress looks at how the input begins. It looks at the magic numbers: 1f 8b of gzip (RFC 1952,
// section 2.3.1), 28 b5 2f fd of zstd (RFC 8878, section 3.1.1), and BZh of bzip2. Names of files do
// not matter, so that standard input works, too.
func decompress(in io.Reader) (io.Reader, func(), error) {
	buffered := bufio.NewReader(in) // which does not copy what is read in larger pieces
	begin, _ := buffered.Peek(6)    // shorter ones are not compressed
	for _, of := range packed {
		if strings.HasPrefix(string(begin), of[0]) {
			return nil, nil, stint.Invalid("the input", of[1],
				"text, gzip, zstd or bzip2; "+of[2]+" | stint simulate - reads it")
		}
	}
	switch {
	case len(begin) > 4 && string(begin[:3]) == "BZh" && begin[4] == '1':
		return bzip2.NewReader(buffered), func() {}, nil
	case bytes.HasPrefix(begin, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(buffered)
		return z, func() {}, prefix.Join(err)
	case bytes.HasPrefix(begin, []byte{0x28, 0xb5, 0x2f, 0xfd}):
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

// take takes a line, of which the first ones wait until they tell the format.
func (r *Reader) take(line string, add func(*Event) error) error {
	r.input.Lines++
	if r.begins {
		r.begins, line = false, strings.TrimPrefix(line, "\ufeff")
	}
	switch {
	case line == "":
		return nil
	case r.parse != nil:
		return r.request(r.input.Lines, line, add)
	}
	r.sample, r.bytes = append(r.sample, sampled{r.input.Lines, line}), r.bytes+len(line)
	if len(r.sample) < maxSample && r.bytes < maxSampleBytes {
		return nil
	}
	return r.begin(add)
}

// begin chooses the format by the lines that wait, and reads them.
func (r *Reader) begin(add func(*Event) error) error {
	if len(r.sample) == 0 {
		return nil
	}
	if err := r.choose(); err != nil {
		return err
	}
	lines := r.sample
	r.sample = nil
	for _, line := range lines {
		if err := r.request(line.number, line.text, add); err != nil {
			return err
		}
	}
	return nil
}

// request reads a line whose format is known.
func (r *Reader) request(number int64, line string, add func(*Event) error) error {
	r.event = Event{Line: number}
	q := &r.event.Request
	if err := r.parse(line, &r.event); err != nil {
		if errors.Is(err, errNoEvent) {
			return nil
		}
		return r.malformed(number, line, err)
	}
	r.input.Requests++
	if r.line.unbelieved {
		r.input.Forwarded++
	}
	s := &r.seen
	s[0], s[1], s[2] = s[0] || q.Path != "", s[1] || q.Host != "", s[2] || q.Method != ""
	s[3], s[4], s[5] = s[3] || q.User != "", s[4] || q.APIKey != "", s[5] || q.Header != nil
	if q.Path == "" {
		q.Path = "/"
	}
	if r.line.garbled != "" {
		r.input.Garbled++
		if r.input.Garbled == 1 {
			r.input.FirstGarbled = fmt.Sprintf("line %d: %.100q", number, r.line.garbled)
		}
	}
	if known := &r.input.Clients; len(*known) < 3 && q.Address != "" && !slices.Contains(*known, q.Address) {
		*known = append(*known, q.Address)
	}
	return add(&r.event)
}

// malformed counts a line, and keeps the first for the report: one example tells what is wrong with
// a log in the wrong format.
func (r *Reader) malformed(number int64, line string, err error) error {
	r.input.Malformed++
	if r.input.Malformed == 1 {
		const most = 200
		r.input.FirstMalformed = fmt.Sprintf("line %d: %v: %q", number, err, line[:min(len(line), most)])
	}
	if r.options.Unread != nil {
		return r.options.Unread(number, line, err)
	}
	return nil
}
