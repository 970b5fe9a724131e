module github.com/stint-go/stint

go 1.26.0

require (
	github.com/yuin/gopher-lua v1.1.2
	go.uber.org/goleak v1.3.0
	pgregory.net/rapid v1.3.0
)

require github.com/stretchr/testify v1.12.1 // indirect
