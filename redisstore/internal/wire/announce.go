package wire

import "encoding/binary"

// What scripts announce is a list of clients, each behind its length in 2 bytes. A length of 0, which no client has,
// says that a policy was reset, whose name follows behind its length.

// AllReset announces that all policies were reset.
const AllReset = "\x00\x00"

// PolicyReset announces that a policy was reset.
func PolicyReset(policy string) string {
	return string(binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(len(policy)))) + policy
}

// ReadAnnouncements calls a function for each client and for each policy of a message. It reports false if the message
// can't be read to its end.
func ReadAnnouncements(message string, client, policy func(string)) bool {
	r := reader{text: message}
	for r.text != "" {
		name := r.bytes(int(r.number(2)))
		if name == "" && !r.short {
			if name = r.bytes(int(r.number(2))); !r.short {
				policy(name)
			}
		} else if !r.short {
			client(name)
		}
	}
	return !r.short
}
