// The official Go client of gRPC, steered by lines of JSON.
//
// Each line of standard input is a request, each line of standard output its answer. The requests are
// those of python_peer.py: {"do": name, fields}; an answer is {"result": …} or {"error": text}.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const requestLimit = 30 * time.Second

type message struct {
	Body       []byte            `json:"body"`
	Tag        *string           `json:"tag"`
	Keys       string            `json:"keys"`
	Group      *string           `json:"group"`
	DueMs      *int64            `json:"due_ms"`
	Priority   *int32            `json:"priority"`
	Properties map[string]string `json:"properties"`
}

type request struct {
	Do         string    `json:"do"`
	Topic      string    `json:"topic"`
	Group      string    `json:"group"`
	Messages   []message `json:"messages"`
	Handle     string    `json:"handle"`
	Expression string    `json:"expression"`
	Kind       string    `json:"kind"`
	WaitS      int       `json:"wait_s"`
	Most       int32     `json:"most"`
	InvisibleS int       `json:"invisible_s"`
	Count      int       `json:"count"`
	TimeoutS   int       `json:"timeout_s"`
	LingerS    int       `json:"linger_s"`
	SlowS      int       `json:"slow_s"`
	FailOnce   []byte    `json:"fail_once"`
	FailAlways []byte    `json:"fail_always"`
	End        string    `json:"end"`
	Check      string    `json:"check"`
	// A message that is sent, or the id of one that is settled.
	Message json.RawMessage `json:"message"`
}

type shown struct {
	ID         string            `json:"id"`
	Topic      string            `json:"topic"`
	Body       []byte            `json:"body"`
	Tag        *string           `json:"tag"`
	Keys       []string          `json:"keys"`
	Properties map[string]string `json:"properties"`
	Group      *string           `json:"group"`
	Attempt    int32             `json:"attempt"`
	AtMs       int64             `json:"at_ms"`
	Corrupted  bool              `json:"corrupted"`
}

type checker struct {
	lock  sync.Mutex
	asked []string
}

type peer struct {
	endpoint  string
	producers map[string]rmq.Producer
	checkers  map[string]*checker
	consumers map[string]rmq.SimpleConsumer
	received  map[string]*rmq.MessageView
}

func show(view *rmq.MessageView) shown {
	keys := append([]string{}, view.GetKeys()...)
	sort.Strings(keys)
	return shown{
		ID:         view.GetMessageId(),
		Topic:      view.GetTopic(),
		Body:       view.GetBody(),
		Tag:        view.GetTag(),
		Keys:       keys,
		Properties: view.GetProperties(),
		Group:      view.GetMessageGroup(),
		Attempt:    view.GetDeliveryAttempt(),
		AtMs:       time.Now().UnixMilli(),
	}
}

func made(topic string, one message) (*rmq.Message, error) {
	found := &rmq.Message{Topic: topic, Body: one.Body, Tag: one.Tag}
	if one.Keys != "" {
		found.SetKeys(one.Keys)
	}
	if one.Group != nil {
		found.SetMessageGroup(*one.Group)
	}
	if one.DueMs != nil {
		found.SetDelayTimestamp(time.UnixMilli(*one.DueMs))
	}
	if one.Priority != nil {
		if err := found.SetPriority(*one.Priority); err != nil {
			return nil, err
		}
	}
	for name, value := range one.Properties {
		found.AddProperty(name, value)
	}
	return found, nil
}

func (p *peer) config(group string) *rmq.Config {
	return &rmq.Config{
		Endpoint:      p.endpoint,
		ConsumerGroup: group,
		Credentials: &credentials.SessionCredentials{
			AccessKey:    os.Getenv("PEER_ACCESS_KEY"),
			AccessSecret: os.Getenv("PEER_SECRET_KEY"),
		},
	}
}

// producer returns the one for a topic; with a verdict it answers checks of half messages.
func (p *peer) producer(topic, verdict string) (rmq.Producer, error) {
	key := topic + "/" + verdict
	if found, ok := p.producers[key]; ok {
		return found, nil
	}
	options := []rmq.ProducerOption{rmq.WithTopics(topic)}
	if verdict != "" {
		check := &checker{}
		p.checkers[key] = check
		options = append(options, rmq.WithTransactionChecker(&rmq.TransactionChecker{
			Check: func(view *rmq.MessageView) rmq.TransactionResolution {
				check.lock.Lock()
				defer check.lock.Unlock()
				check.asked = append(check.asked, view.GetMessageId())
				if verdict == "commit" {
					return rmq.COMMIT
				}
				return rmq.ROLLBACK
			},
		}))
	}
	made, err := rmq.NewProducer(p.config(""), options...)
	if err != nil {
		return nil, err
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	p.producers[key] = made
	return made, nil
}

// send sends one message after the other; it returns id and recall handle, or the error, of each.
func (p *peer) send(it request) (any, error) {
	producer, err := p.producer(it.Topic, "")
	if err != nil {
		return nil, err
	}
	answers := []map[string]any{}
	for _, one := range it.Messages {
		message, err := made(it.Topic, one)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), requestLimit)
		receipts, err := producer.Send(ctx, message)
		cancel()
		if err != nil {
			answers = append(answers, map[string]any{"error": err.Error()})
			continue
		}
		first := receipts[0]
		answers = append(answers, map[string]any{"id": first.MessageID, "recall": first.RecallHandle})
	}
	return answers, nil
}

func (p *peer) transaction(it request) (any, error) {
	producer, err := p.producer(it.Topic, it.Check)
	if err != nil {
		return nil, err
	}
	var one message
	if err := json.Unmarshal(it.Message, &one); err != nil {
		return nil, err
	}
	message, err := made(it.Topic, one)
	if err != nil {
		return nil, err
	}
	transaction := producer.BeginTransaction()
	receipts, err := producer.SendWithTransaction(context.Background(), message, transaction)
	if err != nil {
		return nil, err
	}
	switch it.End {
	case "commit":
		err = transaction.Commit()
	case "rollback":
		err = transaction.RollBack()
	}
	return map[string]any{"id": receipts[0].MessageID}, err
}

func (p *peer) checked(it request) (any, error) {
	check, ok := p.checkers[it.Topic+"/"+it.Check]
	if !ok {
		return []string{}, nil
	}
	check.lock.Lock()
	defer check.lock.Unlock()
	return append([]string{}, check.asked...), nil
}

func (p *peer) recall(it request) (any, error) {
	producer, err := p.producer(it.Topic, "")
	if err != nil {
		return nil, err
	}
	return producer.Recall(context.Background(), it.Topic, it.Handle)
}

func expression(it request) *rmq.FilterExpression {
	if it.Expression == "" || it.Expression == "*" {
		return rmq.SUB_ALL
	}
	if strings.HasPrefix(it.Kind, "SQL") {
		return rmq.NewFilterExpressionWithType(it.Expression, rmq.SQL92)
	}
	return rmq.NewFilterExpression(it.Expression)
}

func (p *peer) open(it request) (any, error) {
	wait := it.WaitS
	if wait == 0 {
		wait = 5
	}
	consumer, err := rmq.NewSimpleConsumer(
		p.config(it.Group),
		rmq.WithSimpleAwaitDuration(time.Duration(wait)*time.Second),
		rmq.WithSimpleSubscriptionExpressions(map[string]*rmq.FilterExpression{it.Topic: expression(it)}),
	)
	if err != nil {
		return nil, err
	}
	if err := consumer.Start(); err != nil {
		return nil, err
	}
	p.consumers[it.Group] = consumer
	return nil, nil
}

// receive receives once; messages are named by their id until they are settled.
func (p *peer) receive(it request) (any, error) {
	invisible := time.Duration(it.InvisibleS) * time.Second
	views, err := p.consumers[it.Group].Receive(context.Background(), it.Most, invisible)
	if err != nil {
		// Where there is no message this client returns an error.
		if strings.Contains(err.Error(), "MESSAGE_NOT_FOUND") || strings.Contains(err.Error(), "40401") {
			return []shown{}, nil
		}
		return nil, err
	}
	found := []shown{}
	for _, view := range views {
		p.received[view.GetMessageId()] = view
		found = append(found, show(view))
	}
	return found, nil
}

func (p *peer) settled(it request) (rmq.SimpleConsumer, *rmq.MessageView, error) {
	var id string
	if err := json.Unmarshal(it.Message, &id); err != nil {
		return nil, nil, err
	}
	view, ok := p.received[id]
	if !ok {
		return nil, nil, fmt.Errorf("message %s was not received", id)
	}
	return p.consumers[it.Group], view, nil
}

func (p *peer) ack(it request) (any, error) {
	consumer, view, err := p.settled(it)
	if err != nil {
		return nil, err
	}
	return nil, consumer.Ack(context.Background(), view)
}

func (p *peer) change(it request) (any, error) {
	consumer, view, err := p.settled(it)
	if err != nil {
		return nil, err
	}
	return nil, consumer.ChangeInvisibleDuration(view, time.Duration(it.InvisibleS)*time.Second)
}

func (p *peer) close(it request) (any, error) {
	consumer := p.consumers[it.Group]
	delete(p.consumers, it.Group)
	return nil, consumer.GracefulStop()
}

// push consumes until enough came, and lingers; the first message takes its time.
func (p *peer) push(it request) (any, error) {
	var lock sync.Mutex
	came, slow := []shown{}, time.Duration(it.SlowS)*time.Second
	once := it.FailOnce
	consume := func(view *rmq.MessageView) rmq.ConsumerResult {
		lock.Lock()
		came = append(came, show(view))
		body := string(view.GetBody())
		failed := it.FailAlways != nil && body == string(it.FailAlways)
		if once != nil && body == string(once) {
			failed, once = true, nil
		}
		pause := slow
		slow = 0
		lock.Unlock()
		if failed {
			return rmq.FAILURE
		}
		time.Sleep(pause)
		return rmq.SUCCESS
	}
	consumer, err := rmq.NewPushConsumer(
		p.config(it.Group),
		rmq.WithPushAwaitDuration(5*time.Second),
		rmq.WithPushSubscriptionExpressions(map[string]*rmq.FilterExpression{it.Topic: rmq.SUB_ALL}),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: consume}),
	)
	if err != nil {
		return nil, err
	}
	if err := consumer.Start(); err != nil {
		return nil, err
	}
	end := time.Now().Add(time.Duration(it.TimeoutS) * time.Second)
	count := func() int {
		lock.Lock()
		defer lock.Unlock()
		return len(came)
	}
	for count() < it.Count && time.Now().Before(end) {
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(time.Duration(it.LingerS) * time.Second)
	if err := consumer.GracefulStop(); err != nil {
		return nil, err
	}
	lock.Lock()
	defer lock.Unlock()
	return came, nil
}

func main() {
	answers := bufio.NewWriter(os.Stdout)
	say := func(answer map[string]any) {
		line, err := json.Marshal(answer)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(answers, "%s\n", line)
		answers.Flush()
	}
	rmq.EnableSsl = os.Getenv("PEER_TLS") != ""
	p := &peer{
		endpoint:  os.Args[1],
		producers: map[string]rmq.Producer{},
		checkers:  map[string]*checker{},
		consumers: map[string]rmq.SimpleConsumer{},
		received:  map[string]*rmq.MessageView{},
	}
	todo := map[string]func(request) (any, error){
		"send": p.send, "transaction": p.transaction, "checked": p.checked, "recall": p.recall,
		"open": p.open, "receive": p.receive, "ack": p.ack, "change": p.change, "close": p.close,
		"push": p.push,
	}
	say(map[string]any{"ready": true})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var it request
		if err := json.Unmarshal(lines.Bytes(), &it); err != nil {
			say(map[string]any{"error": err.Error()})
			continue
		}
		work, ok := todo[it.Do]
		if !ok {
			say(map[string]any{"error": "nobody knows how to " + it.Do})
			continue
		}
		result, err := work(it)
		if err != nil {
			say(map[string]any{"error": err.Error()})
			continue
		}
		say(map[string]any{"result": result})
	}
}
