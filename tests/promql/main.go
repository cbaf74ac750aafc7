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

// asked returns the labels that series of an expression must have, without those that it adds itself.
func asked(given []string, node parser.Node) []string {
	made := map[string]bool{}
	parser.Inspect(node, func(each parser.Node, _ []parser.Node) error {
		if call, ok := each.(*parser.Call); ok && call.Func.Name == "label_replace" {
			made[call.Args[1].(*parser.StringLiteral).Val] = true
		}
		return nil
	})
	needed := []string{}
	for _, label := range given {
		if !made[label] {
			needed = append(needed, label)
		}
	}
	return needed
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
		case *parser.Call:
			if each.Func.Name == "label_replace" {
				source := each.Args[3].(*parser.StringLiteral).Val
				told.Uses = append(told.Uses, use{[]string{source}, series(each.Args[0])})
			}
		case *parser.AggregateExpr:
			told.Uses = append(told.Uses, use{asked(each.Grouping, each.Expr), series(each.Expr)})
			if told.By == nil && !each.Without && len(each.Grouping) > 0 {
				told.By = named(each.Grouping)
			}
		case *parser.BinaryExpr:
			if each.VectorMatching != nil {
				for _, side := range []parser.Expr{each.LHS, each.RHS} {
					needed := asked(each.VectorMatching.MatchingLabels, side)
					told.Uses = append(told.Uses, use{needed, series(side)})
				}
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
