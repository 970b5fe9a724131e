package resp

// Parse is parse, of commands that are not long.
func Parse(text []byte, args [][]byte) ([][]byte, int, error) {
	return parse(text, args, commonCommand)
}

// MaxCommandBytes is how long these may be.
const MaxCommandBytes = commonCommand
