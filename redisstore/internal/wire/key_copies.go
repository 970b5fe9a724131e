package wire

import "strings"

// keyCopies are copies of the keys of callers that may leave before a batch has been answered, and may then use
// the memory of their keys for others. They are copied one behind another, so that an
// allocation lasts for many batches. Copies are never overwritten: a connection may still have
// to send a command whose batch was given up. The zero value is ready to use.
type keyCopies struct{ room strings.Builder }

// keyCopiesBytes is how much room is made at once.
const keyCopiesBytes = 4096

// keep returns a copy of a name.
func (n *keyCopies) keep(name string) string {
	if n.room.Cap()-n.room.Len() < len(name) {
		n.room.Reset()
		n.room.Grow(max(keyCopiesBytes, len(name)))
	}
	from := n.room.Len()
	n.room.WriteString(name)
	return n.room.String()[from:]
}
