package waitqueue

// An Action is what a [Step] does.
type Action uint8

// The actions. Done is the end: the verdict says how the request ended, and the delay of an admitted one is still to be
// waited for. Follow waits until a time or the turn, Pause until a time. The others ask the limits: Try takes, and
// counts no denial; Take takes, and Peek looks; Shadow has the rules in shadow decide alone, Take with the others.
const (
	Done Action = iota
	Follow
	Pause
	Try
	Take
	Peek
	Shadow
)

// A Step is what a request that waits does next.
type Step struct {
	Do Action
	// Until is when to go on, of Follow and Pause, on the clock of the steps.
	Until int64
}
