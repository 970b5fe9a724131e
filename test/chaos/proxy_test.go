package chaos_test

import (
	"bytes"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testport"
)

// A proxy stands between the store and a server.
type proxy struct {
	t     testing.TB
	proxy *toxiproxy.Proxy
}

// startProxy starts a proxy that ends with the test.
func startProxy(t testing.TB, server string) *proxy {
	t.Helper()
	api := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &proxy{t, toxiproxy.NewProxy(api, t.Name(), testport.Address(t), server)}
	must.Do(t, p.proxy.Start())
	t.Cleanup(p.proxy.Stop)
	return p
}

func (p *proxy) addr() string { return p.proxy.Listen }

func (p *proxy) url() string { return "redis://" + p.addr() }

// add adds a toxic to what comes from the server, or to what goes to it.
func (p *proxy) add(kind, direction string, attributes any) {
	p.t.Helper()
	text := must.Get(json.Marshal(map[string]any{
		"name": kind + "." + direction, "type": kind, "stream": direction, "attributes": attributes,
	}))(p.t)
	must.Get(p.proxy.Toxics.AddToxicJson(bytes.NewReader(text)))(p.t)
}

// heal removes all toxics.
func (p *proxy) heal() { p.proxy.Toxics.ResetToxics(p.t.Context()) }

const (
	fromServer = "downstream"
	toServer   = "upstream"
)

// lossy delays every tenth piece by a retransmission's time, as TCP does with a packet
// that was lost on its way.
type lossy struct {
	Delay int64 `json:"delay"` // in milliseconds
}

type pieces struct{ n atomic.Int64 }

func (*lossy) NewState() any { return new(pieces) }

func (l *lossy) Pipe(stub *toxics.ToxicStub) {
	seen, _ := stub.State.(*pieces)
	l.each(stub, func(*stream.StreamChunk) bool {
		if seen.n.Add(1)%10 == 0 {
			<-time.After(time.Duration(l.Delay) * time.Millisecond)
		}
		return true
	})
}

// each passes pieces on that pass lets through.
func (*lossy) each(stub *toxics.ToxicStub, pass func(*stream.StreamChunk) bool) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case c := <-stub.Input:
			if c == nil {
				stub.Close()
				return
			}
			if pass(c) {
				stub.Output <- c
			}
		}
	}
}

// forgetful swallows everything on the connections that were there when it came, for
// ever, and lets later ones through: what a machine finds that has lost its power and
// is back.
type forgetful struct{ lossy }

var powerCuts atomic.Int64

type born struct{ cuts int64 }

func (*forgetful) NewState() any { return &born{powerCuts.Load()} }

func (f *forgetful) Pipe(stub *toxics.ToxicStub) {
	at, _ := stub.State.(*born)
	f.each(stub, func(*stream.StreamChunk) bool { return at.cuts == powerCuts.Load() })
}

func init() {
	toxics.Register("lossy", new(lossy))
	toxics.Register("forgetful", new(forgetful))
}
