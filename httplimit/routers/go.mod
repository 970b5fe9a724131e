module github.com/stint-go/stint/httplimit/routers

go 1.26.0

require (
	github.com/go-chi/chi/v5 v5.5.0
	github.com/labstack/echo/v5 v5.3.1
	github.com/stint-go/stint v0.1.0
)
