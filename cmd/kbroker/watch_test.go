package main

import "github.com/kbroker/kbroker/console"

var everything = console.Query{Limit: console.MaxPartitions}
