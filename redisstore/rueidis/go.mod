module github.com/stint-go/stint/redisstore/rueidis

go 1.26.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/redis/rueidis v1.0.79
	github.com/stint-go/stint v0.1.0
	go.uber.org/goleak v1.3.0
)

require (
	golang.org/x/sys v0.48.0 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)
