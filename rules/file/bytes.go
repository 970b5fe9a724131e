package file

import (
	"fmt"
	"os"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/document"
)

// Bytes reads a regular file of at most so many bytes. The error does not repeat the
// name.
func Bytes(name string, most int64) ([]byte, error) {
	info, err := os.Stat(name)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > most) {
		return nil, stint.Invalid("the file", document.Verbatim(fmt.Sprintf("%v of %d bytes", info.Mode(), info.Size())), fmt.Sprintf("a regular file of at most %d bytes", most))
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(name) //nolint:gosec // the operator names the file
	}
	return data, cause(err)
}
