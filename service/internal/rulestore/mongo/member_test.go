package mongo_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/stint-go/stint/internal/must"
)

// A member plays one of a replica set, or a mongos, as far as change streams need it, because
// the server of the other tests has none. All collections are empty, and the test decides what happens in
// them. It speaks MongoDB's wire protocol, OP_MSG and the OP_QUERY of a greeting, as
// https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/ describes them.
type member struct {
	t       testing.TB
	address string
	hello   bson.D
	events  chan bson.D // the replies to getMore
	ended   chan struct{}

	mu       sync.Mutex // guards what follows
	watched  map[string]int
	pipeline bson.RawArray // of the latest change stream
	concern  string        // its read concern
	conns    []net.Conn
}

// newMember starts one. hello is added to its answer to the command hello.
func newMember(t testing.TB, hello func(address string) bson.D) *member {
	t.Helper()
	l := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	m := &member{t: t, address: l.Addr().String(), events: make(chan bson.D), ended: make(chan struct{}), watched: map[string]int{}}
	m.hello = append(bson.D{
		{Key: "ok", Value: 1},
		{Key: "isWritablePrimary", Value: true},
		{Key: "ismaster", Value: true},
		{Key: "helloOk", Value: true},
		{Key: "minWireVersion", Value: 0},
		{Key: "maxWireVersion", Value: 25},
		{Key: "maxBsonObjectSize", Value: 16 << 20},
		{Key: "maxMessageSizeBytes", Value: 48_000_000},
		{Key: "maxWriteBatchSize", Value: 100_000},
	}, hello(m.address)...)
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			m.mu.Lock()
			m.conns = append(m.conns, conn)
			m.mu.Unlock()
			group.Go(func() {
				defer func() { _ = conn.Close() }()
				for m.serve(conn) {
				}
			})
		}
	})
	t.Cleanup(func() {
		close(m.ended)
		_ = l.Close()
		m.mu.Lock()
		for _, conn := range m.conns {
			_ = conn.Close()
		}
		m.mu.Unlock()
		group.Wait()
	})
	return m
}

func (m *member) url() string { return "mongodb://" + m.address + "/stint" }

// watches is how often a change stream of a collection was opened.
func (m *member) watches(collection string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.watched[collection]
}

const (
	opReply = 1
	opQuery = 2004
	opMsg   = 2013
	// headerBytes are the length, the number, what it answers and the operation.
	headerBytes = 16
)

// serve answers one message.
func (m *member) serve(conn io.ReadWriter) bool {
	var header [headerBytes]byte
	if _, err := io.ReadFull(conn, header[:]); err != nil {
		return false
	}
	body := make([]byte, binary.LittleEndian.Uint32(header[:])-headerBytes)
	if _, err := io.ReadFull(conn, body); err != nil {
		return false
	}
	const flags, section = 4, 1
	var reply, before []byte
	var op uint32
	switch asked := binary.LittleEndian.Uint32(header[12:]); asked {
	case opQuery: // flags, the collection's name, how many to skip and to return, and the command
		end := flags + bytes.IndexByte(body[flags:], 0) + 1
		reply, op = m.answer(body[end+8:]), opReply
		before = make([]byte, 20) // flags, cursor, where it starts, how many follow: one
		before[16] = 1
	case opMsg: // flags, the kind of a section, and the command
		reply, op, before = m.answer(body[flags+section:]), opMsg, make([]byte, flags+section)
	default:
		m.t.Errorf("operation %d", asked)
	}
	if reply == nil {
		return false
	}
	message := binary.LittleEndian.AppendUint32(nil, uint32(headerBytes+len(before)+len(reply)))
	message = append(message, 0, 0, 0, 0)
	message = append(message, header[4:8]...)
	message = binary.LittleEndian.AppendUint32(message, op)
	_, err := conn.Write(append(append(message, before...), reply...))
	return err == nil
}

// answer is the reply to a command, nil when the test has ended.
func (m *member) answer(command bson.Raw) []byte {
	first, err := command.IndexErr(0)
	if err != nil {
		m.t.Error(err)
		return nil
	}
	reply := m.reply(command, first.Key())
	if reply == nil {
		return nil
	}
	text, err := bson.Marshal(reply)
	if err != nil {
		m.t.Error(err)
	}
	return text
}

// reply is the reply to a command, nil when the test has ended.
func (m *member) reply(command bson.Raw, name string) (reply bson.D) {
	switch name {
	case "hello", "ismaster", "isMaster":
		reply = m.hello
	case "find":
		collection := command.Lookup(name).StringValue()
		reply = cursor(0, "stint."+collection, "firstBatch", bson.A{})
	case "aggregate":
		collection, _ := command.Lookup(name).StringValueOK()
		m.mu.Lock()
		m.watched[collection]++
		m.pipeline, _ = command.Lookup("pipeline").ArrayOK()
		m.concern, _ = command.Lookup("readConcern", "level").StringValueOK()
		m.mu.Unlock()
		reply = cursor(7, "stint.$cmd.aggregate", "firstBatch", bson.A{})
	case "getMore":
		select {
		case reply = <-m.events:
		case <-m.ended:
			return nil
		}
	case "killCursors", "endSessions", "ping":
		reply = bson.D{{Key: "ok", Value: 1}}
	default:
		m.t.Errorf("the command %s", name)
	}
	return reply
}

func cursor(id int64, namespace, batch string, documents bson.A) bson.D {
	return bson.D{{Key: "ok", Value: 1}, {Key: "cursor", Value: bson.D{
		{Key: "id", Value: id}, {Key: "ns", Value: namespace}, {Key: batch, Value: documents},
	}}}
}

// happens lets something happen in a collection, as a change stream tells it.
func (m *member) happens(token, operation, collection string) {
	event := bson.D{
		{Key: "_id", Value: bson.D{{Key: "_data", Value: token}}},
		{Key: "operationType", Value: operation},
		{Key: "ns", Value: bson.D{{Key: "db", Value: "stint"}, {Key: "coll", Value: collection}}},
	}
	m.says(cursor(7, "stint.$cmd.aggregate", "nextBatch", bson.A{event}))
}

// says answers a client that waits for an event of a change stream.
func (m *member) says(reply bson.D) {
	select {
	case m.events <- reply:
	case <-m.t.Context().Done():
		m.t.Error("nobody waits for an event")
	}
}
