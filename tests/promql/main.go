// Command promql reads one case a line: a PromQL query or a Grafana dashboard. It answers with what Prometheus' parser
// finds in the query, or with the faults that Grafana's own types find in the dashboard.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// use is a place where a query names labels, and the series that it takes them from.
type use struct {
	Labels []string `json:"labels"`
	Series []string `json:"series"`
}

type answer struct {
	Fault string   `json:"fault"`
	Uses  []use    `json:"uses"`
	By    []string `json:"by"` // the labels of the outermost aggregation; null without one
}

func series(node parser.Node) []string {
	names := []string{}
	parser.Inspect(node, func(inner parser.Node, _ []parser.Node) error {
		if selector, ok := inner.(*parser.VectorSelector); ok && !slices.Contains(names, selector.Name) {
			names = append(names, selector.Name)
		}
		return nil
	})
	return names
}

func named(given []string) []string {
	return append([]string{}, given...)
}

func found(query string) answer {
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		return answer{Fault: err.Error()}
	}
	told := answer{Uses: []use{}}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		switch each := node.(type) {
		case *parser.VectorSelector:
			keys := []string{}
			for _, matcher := range each.LabelMatchers {
				if matcher.Name != labels.MetricName {
					keys = append(keys, matcher.Name)
				}
			}
			told.Uses = append(told.Uses, use{keys, []string{each.Name}})
		case *parser.AggregateExpr:
			told.Uses = append(told.Uses, use{named(each.Grouping), series(each.Expr)})
			if told.By == nil && !each.Without && len(each.Grouping) > 0 {
				told.By = named(each.Grouping)
			}
		case *parser.BinaryExpr:
			if each.VectorMatching != nil {
				both := named(each.VectorMatching.MatchingLabels)
				told.Uses = append(told.Uses, use{both, series(each.LHS)}, use{both, series(each.RHS)})
			}
		}
		return nil
	})
	return told
}

func checked(document string) answer {
	var read dashboard.Dashboard
	if err := read.UnmarshalJSONStrict([]byte(document)); err != nil {
		return answer{Fault: err.Error()}
	}
	if err := read.Validate(); err != nil {
		return answer{Fault: err.Error()}
	}
	return answer{}
}

func main() {
	plugins.RegisterDefaultPlugins()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var given [2]string
		if err := json.Unmarshal(lines.Bytes(), &given); err != nil {
			panic(err)
		}
		told := found
		if given[0] == "dashboard" {
			told = checked
		}
		if err := out.Encode(told(given[1])); err != nil {
			panic(err)
		}
	}
	if err := lines.Err(); err != nil {
		panic(err)
	}
}
